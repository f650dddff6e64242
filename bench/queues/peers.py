"""Installs the peers' packages into their own virtual environment."""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PACKAGES = (
    "pgqueuer==1.6.0",
    "procrastinate==3.10.0",
    "asyncpg==0.32.0",
    "psycopg[binary,pool]==3.3.8",
    "uvloop==0.23.0",
)
NAMES = "PgQueuer 1.6.0 and Procrastinate 3.10.0"
INSTALL_SECONDS_MAX = 600


def install_peers(data_dir: Path, say: Callable[[str], None]) -> str | None:
    """Returns the interpreter of that environment; None if the installation failed."""
    environment = data_dir / f"bench-peers-{_digest()}"
    python, complete = environment / "bin" / "python", environment / "complete"
    try:
        if not complete.exists():
            say(f"Installing {NAMES} for this measurement alone, in {environment}.")
            _make(environment, python)
            complete.touch()
    except subprocess.CalledProcessError as error:
        say(f"{NAMES} are not measured, because they cannot be installed: {_reason(error)}")
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"{NAMES} are not measured, because they cannot be installed: {error}")
        return None
    return str(python)


def _digest() -> str:
    """Identifies the environment by Python version and packages."""
    named = " ".join((sys.version, *PACKAGES))
    return hashlib.sha256(named.encode()).hexdigest()[:12]


def _make(environment: Path, python: Path) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(environment)])
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:"]
    _run([str(python), "-m", "pip", "install", *options, *PACKAGES])


def _run(command: list[str]) -> None:
    """Ignores the user's settings for other environments, as `./run` does."""
    subprocess.run(
        ["/usr/bin/env", "-u", "PYTHONPATH", "-u", "PYTHONHOME", "PIP_USER=0", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=True,
    )


def _reason(error: subprocess.CalledProcessError) -> str:
    lines = [line for line in error.stdout.splitlines() if line.strip()]
    return lines[-1] if lines else str(error)
