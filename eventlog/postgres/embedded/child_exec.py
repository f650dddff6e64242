"""Run as a program, never imported: becomes another program that dies with its parent.

It exists because the two things it does must happen in the child, after the fork: to give
up root, and to ask the kernel for a signal when the parent dies. Doing them in Python code
between fork and exec of a process with threads can deadlock, so a fresh interpreter does
them and then replaces itself. It uses the standard library only and starts in about 30 ms.
"""

import ctypes
import json
import os
import sys

PR_SET_PDEATHSIG = 1


def become(order: dict[str, object]) -> None:
    uid, gid = order["uid"], order["gid"]
    if isinstance(uid, int) and isinstance(gid, int):
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # Only after the change of user, because the kernel forgets the signal with it.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, order["signal"])
    # The parent may have died before the kernel knew that we care.
    if os.getppid() != order["parent"]:
        sys.exit("the supervisor died before PostgreSQL started")
    argv, environment = order["argv"], order["environment"]
    assert isinstance(argv, list)
    assert isinstance(environment, dict)
    try:
        os.execve(argv[0], argv, environment)  # noqa: S606 - no shell is what we want
    except OSError as error:
        sys.exit(f"error: {argv[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    become(json.loads(sys.argv[1]))
