"""A program, never imported, that executes another program which dies with its parent.

Dropping root and requesting a parent-death signal must happen in the child after fork, where Python
code of a threaded process can deadlock. So a fresh interpreter does it and then replaces itself. It
uses the standard library only and starts in about 30 ms.
"""

import ctypes
import json
import os
import sys

PR_SET_PDEATHSIG = 1


def become(request: dict[str, object]) -> None:
    uid, gid = request["uid"], request["gid"]
    if isinstance(uid, int) and isinstance(gid, int):
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # After the change of user, which resets the signal.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, request["signal"])
    # The parent may have died before prctl took effect.
    if os.getppid() != request["parent"]:
        sys.exit("the supervisor died before PostgreSQL started")
    argv, environment = request["argv"], request["environment"]
    assert isinstance(argv, list)
    assert isinstance(environment, dict)
    try:
        os.execve(argv[0], argv, environment)  # noqa: S606 - no shell is what we want
    except OSError as error:
        sys.exit(f"error: {argv[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    become(json.loads(sys.argv[1]))
