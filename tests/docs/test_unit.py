"""docs/operate/systemd.md: its commands prepare a machine on which the command of its unit starts.

Nothing on this machine is changed: places and the user are replaced by those of the test, and
`useradd` works on files in a directory. systemd itself is not needed.
"""

import configparser
import os
import pwd
import re
import signal
import socket
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.docs.snippets import blocks_of
from tests.support.running.processes import SECONDS_MAX, Process

PAGE = "docs/operate/systemd.md"
# The one that systemd gives to services.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SETUP_SECONDS_MAX = 200
USERADD = """#!/bin/sh
exec /usr/sbin/useradd --prefix {prefix} "$@"
"""


class Machine:
    """The places of the page in a directory, and the user that may reach the PostgreSQL server."""

    def __init__(self, top: Path, checkout: Path, conninfo: str) -> None:
        self.top = top
        given = conninfo_to_dict(conninfo)
        self.user = pwd.getpwuid(os.stat(str(given["host"])).st_uid)
        url = f"postgresql://{given['user']}@/{given['dbname']}?host={given['host']}"
        self.replacements = {
            "/opt/daybook": str(checkout),
            "/var/lib/daybook": str(top / "state"),
            "/etc/daybook.env": str(top / "daybook.env"),
            "postgresql://daybook:PASSWORD@db/daybook": url,
            "-o daybook -g daybook": f"-o {self.user.pw_uid} -g {self.user.pw_gid}",
        }
        (top / "etc").mkdir()
        for name in ("passwd", "group", "shadow", "gshadow"):
            (top / "etc" / name).touch()
        (top / "path").mkdir()
        (top / "path" / "useradd").write_text(USERADD.format(prefix=top))
        (top / "path" / "useradd").chmod(0o755)

    def here(self, text: str) -> str:
        for printed, replacement in self.replacements.items():
            text = text.replace(printed, replacement)
        return text

    def run(self, script: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(script)],
            env={"PATH": f"{self.top / 'path'}:{PATH}", "HOME": str(self.top)},
            capture_output=True,
            text=True,
            timeout=SETUP_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, unit: str, port: int) -> Process:
        """The unit's command with its user, directory and variables, and with nothing of ours."""
        parser = configparser.RawConfigParser(strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser documents
        parser.read_string(self.here(unit))
        service = parser["Service"]
        lines = [service["Environment"], *Path(service["EnvironmentFile"]).read_text().splitlines()]
        variables = dict(line.split("=", 1) for line in lines)
        assert service["User"] == "daybook"
        return Process(
            service["ExecStart"].split(),
            cwd=Path(service["WorkingDirectory"]),
            variables={"PATH": PATH, "DAYBOOK_PORT": str(port), **variables},
            user=self.user.pw_uid,
            group=self.user.pw_gid,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
        )


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the page is for root: it installs for another user")
def test_the_commands_of_the_page_prepare_a_start_of_the_unit(
    checkout: Path, own_database: str
) -> None:
    unit, prepare, begin = blocks_of(PAGE)
    assert (unit.language, prepare.is_run, begin.is_run) == ("ini", True, False)
    top = checkout.parent
    machine = Machine(top, checkout, own_database)
    machine.run(prepare.text)
    assert re.search(r"^daybook:x:\d+", (top / "etc" / "passwd").read_text(), re.M)

    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with machine.start(unit.text, port) as process:
        assert process.says(f"Daybook is running on http://0.0.0.0:{port}"), process.output
        with urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=SECONDS_MAX) as answer:
            assert answer.status == 200
        assert pwd.getpwuid(os.stat(f"/proc/{process.process.pid}").st_uid) == machine.user
        # The second command of the last block, on the lines of the journal.
        question = begin.text.splitlines()[1].split("|", 1)[1]
        journal = top / "journal"
        journal.write_text(process.output)
        machine.run(f"cat {journal} | {question}")
        assert process.signal_and_wait(signal.SIGTERM) == 0, process.output
