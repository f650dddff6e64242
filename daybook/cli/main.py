"""The command line: `daybook serve`, `worker`, `demo`, `migrate`, `bench …`.

Commands import their modules on use, so that help and usage errors appear at once.
"""

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from traceback import walk_tb

import click

from daybook.api.server.signals import StopSignals, stop_signals
from daybook.api.settings.environment import flag_of, from_environment, help_of
from daybook.api.settings.settings import Settings
from daybook.app.app import Daybook
from daybook.cli.audit import audit_group
from daybook.cli.inspect_commands import COMMANDS
from daybook.cli.keys import keys_group
from daybook.cli.log_commands import COMMANDS as LOG_COMMANDS
from daybook.cli.pg import pg_command
from daybook.cli.quarantine import quarantine_group
from daybook.cli.rebuild import rebuild_command
from daybook.cli.terminal import echo, say
from daybook.errors import BadSetup, DaybookError
from daybook.eventlog.errors import SetupError
from daybook.worker.worker import Worker

CHECKOUT = Path(__file__).parents[2]
# Benchmarks whose command differs from the name of their module.
BENCH_NAMES = {"ops_queries": "office", "slow_clients": "guard", "time_travel": "past"}
TARGET = re.compile(r"\w+(\.\w+)*:\w+")


class CliContext:
    """Settings of a command: its flags override the environment. The `ctx.obj` of all commands."""

    def __init__(self, signals: StopSignals) -> None:
        self.signals = signals
        self.flags: dict[str, str] = {}

    def settings(self) -> Settings:
        return from_environment(self.flags)

    def conninfo(self, say: Callable[[str], None]) -> AbstractContextManager[str]:
        """Opens the database of a running service, or starts one for the duration."""
        from daybook.api.server.database import shared_database

        return shared_database(self.settings(), say)


def setting_option(name: str) -> click.Option:
    """A flag for a setting; its value goes to CliContext, not to the command's arguments."""

    def store(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            context: CliContext = ctx.obj
            context.flags[name] = value

    return click.Option([flag_of(name)], help=help_of(name), expose_value=False, callback=store)


DATABASE_OPTIONS: list[click.Parameter] = [
    setting_option("data_dir"),
    setting_option("database_url"),
]
ADDRESS_OPTIONS: list[click.Parameter] = [setting_option("host"), setting_option("port")]


def show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from daybook.api.version import version

        echo(f"daybook {version()}")
        ctx.exit()


@click.group()
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version.",
)
def cli() -> None:
    """Daybook: every order, job and ticket in one append-only PostgreSQL log."""


@cli.command(params=[*ADDRESS_OPTIONS, *DATABASE_OPTIONS])
@click.pass_obj
def serve(context: CliContext) -> None:
    """Run the service, with a PostgreSQL of its own unless DATABASE_URL names one."""
    settings = context.settings()
    try:
        from daybook.api.server.run import serve

        serve(
            settings,
            context.signals,
            say=say,
            announce=lambda url: echo(f"Daybook is running on {url} (Ctrl-C stops it)"),
        )
    except KeyboardInterrupt:
        # A stop signal during the start is an orderly end, too.
        pass
    say("Daybook has stopped.")


@cli.command("worker")
@click.argument("target", metavar="MODULE:WORKER")
@click.option("--url", help="The address of the service, instead of the worker's own.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="Number of concurrent jobs, instead of the worker's own.",
)
@click.pass_obj
def work(context: CliContext, target: str, url: str | None, concurrency: int | None) -> None:
    """Run the worker or the app that a module defines, until Ctrl-C.

    --url overrides DAYBOOK_URL, which overrides the worker's own address; DAYBOOK_KEY overrides its
    key.
    """
    settings = context.settings()
    try:
        found = _load(target)
        run = found.run if isinstance(found, Worker) else found.run_worker
        run(url=url or settings.url, key=settings.key, concurrency=concurrency)
    except (DaybookError, BadSetup) as error:
        raise SetupError(str(error)) from error
    except KeyboardInterrupt:
        # A stop signal during the start is an orderly end, too.
        pass


def _load(target: str) -> Worker | Daybook:
    """Imports the module as `python -m` does, also from the working directory."""
    if not TARGET.fullmatch(target):
        raise SetupError(f"{target!r} does not name a worker: write it as MODULE:WORKER.")
    name, _, attribute = target.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A missing import inside the module gets a full traceback, for its author.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise SetupError(f"There is no module {name!r} here.") from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Worker | Daybook):
        raise SetupError(f"There is no worker {attribute!r} in {name}.")
    return found


@cli.command(params=[setting_option("port"), setting_option("data_dir")])
@click.pass_obj
def demo(context: CliContext) -> None:
    """Run a simulated restaurant with guests, VIPs and bots, until Ctrl-C.

    Its data is deleted afterwards, unless a --data-dir is given.
    """
    settings = context.settings()
    try:
        from daybook.cli.demo import run, shown

        with shown() as show:
            run(
                settings,
                context.signals,
                data_dir=settings.data_dir if "data_dir" in context.flags else None,
                say=say,
                announce=lambda url: echo(
                    f"The restaurant is open on {url}/api/orders (Ctrl-C closes it)"
                ),
                show=show,
            )
    except KeyboardInterrupt:
        # A stop signal during the start is an orderly end, too.
        pass
    say("The restaurant is closed.")


@cli.command(params=DATABASE_OPTIONS)
@click.pass_obj
def migrate(context: CliContext) -> None:
    """Apply all pending migrations."""
    from daybook.api.server.database import prepare

    with context.conninfo(say) as conninfo:
        applied = prepare(conninfo)
    for name in applied:
        echo(f"Applied {name}.")
    if not applied:
        echo("The database is up to date.")


class Benches(click.Group):
    """Modules of the package `bench` with a `command`, imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        package = importlib.import_module("bench")
        found = [one.name for one in pkgutil.iter_modules(package.__path__) if not one.ispkg]
        return sorted(BENCH_NAMES.get(name, name) for name in found)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        modules = {name: module for module, name in BENCH_NAMES.items()}
        module = importlib.import_module(f"bench.{modules.get(cmd_name, cmd_name)}")
        command: click.Command | None = getattr(module, "command", None)
        if command is not None:
            command.params += [one for one in DATABASE_OPTIONS if one not in command.params]
        return command


@click.group("bench", cls=Benches, params=DATABASE_OPTIONS)
def benches() -> None:
    """Measure how fast Daybook is on this machine."""


# The wheel has no benchmarks; beside it, `bench` would be a package of the user.
if (CHECKOUT / "pyproject.toml").exists() and (CHECKOUT / "bench").is_dir():
    cli.add_command(benches)

for command in (*COMMANDS, *LOG_COMMANDS, pg_command, rebuild_command):
    command.params += DATABASE_OPTIONS
    cli.add_command(command)
for group in (keys_group, quarantine_group, audit_group):
    for command in group.commands.values():
        command.params += DATABASE_OPTIONS
    cli.add_command(group)


def main() -> None:
    """Prints a SetupError as one sentence with exit code 2; a traceback means a defect."""
    try:
        with stop_signals() as signals:
            cli(prog_name="daybook", obj=CliContext(signals))
    except SetupError as error:
        say(str(error))
        sys.exit(2)
    except ModuleNotFoundError as error:
        if not _lacks_extra(error):
            raise
        say(
            f"This command needs {error.name}: install it with pip install 'daybook-queue[server]'."
        )
        sys.exit(2)


def _lacks_extra(error: ModuleNotFoundError) -> bool:
    """Whether a module of Daybook needs the missing one, rather than the module of a worker."""
    *_, (frame, _line) = walk_tb(error.__traceback__)
    return str(frame.f_globals["__name__"]).startswith("daybook.")
