"""The command line: `daybook serve`, `worker`, `demo`, `migrate`, `bench …`.

A command reads its options, does one thing that stands elsewhere, and says what came of it. What
it needs is imported when it runs, so that help and mistakes are answered at once.
"""

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import click

from daybook.api.server.signals import StopSignals, stop_signals
from daybook.api.settings.environment import flag_of, from_environment, help_of
from daybook.api.settings.settings import Settings
from daybook.cli.audit import audit_group, check_command
from daybook.cli.inspect_commands import COMMANDS
from daybook.cli.keys import keys_group
from daybook.cli.log_commands import COMMANDS as HISTORY_COMMANDS
from daybook.cli.pg import pg_command
from daybook.cli.quarantine import quarantine_group
from daybook.cli.rebuild import rebuild_command
from daybook.cli.terminal import echo, say
from daybook.errors import BadSetup, DaybookError
from daybook.eventlog.errors import SetupError
from daybook.worker.worker import Worker

CHECKOUT = Path(__file__).parents[2]
TARGET = re.compile(r"\w+(\.\w+)*:\w+")


class CliContext:
    """What a command's flags say, over the environment. It is the `ctx.obj` of every command."""

    def __init__(self, signals: StopSignals) -> None:
        self.signals = signals
        self.flags: dict[str, str] = {}

    def settings(self) -> Settings:
        return from_environment(self.flags)

    def conninfo(self, say: Callable[[str], None]) -> AbstractContextManager[str]:
        """The database: that of a running service, or one that lasts as long as the context."""
        from daybook.api.server.database import shared_database

        return shared_database(self.settings(), say)


def setting_option(name: str) -> click.Option:
    """A flag for a setting; its value goes to the choice and not to the command's arguments."""

    def choose(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            choice: CliContext = ctx.obj
            choice.flags[name] = value

    return click.Option([flag_of(name)], help=help_of(name), expose_value=False, callback=choose)


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
    help="Say which version this is.",
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
        # It was told to stop before it was up, which is no less orderly.
        pass
    say("Daybook has stopped.")


@cli.command("worker")
@click.argument("target", metavar="MODULE:WORKER")
@click.option("--url", help="The address of the service, instead of the worker's own.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="How many jobs are done at once, instead of the worker's own number.",
)
@click.pass_obj
def work(context: CliContext, target: str, url: str | None, concurrency: int | None) -> None:
    """Do jobs: run the worker that a module defines, until Ctrl-C.

    DAYBOOK_URL and DAYBOOK_KEY go before the worker's own address and key, and --url before
    DAYBOOK_URL.
    """
    settings = context.settings()
    try:
        worker = _load(target)
        worker.run(url=url or settings.url, key=settings.key, concurrency=concurrency)
    except (DaybookError, BadSetup) as error:
        raise SetupError(str(error)) from error
    except KeyboardInterrupt:
        # It was told to stop before it had begun, which is no less orderly.
        pass


def _load(target: str) -> Worker:
    """As `python -m` would find it, from the directory in which the command was given."""
    if not TARGET.fullmatch(target):
        raise SetupError(f"{target!r} does not name a worker: write it as MODULE:WORKER.")
    name, _, attribute = target.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # That the module itself lacks something is for its author to see in full.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise SetupError(f"There is no module {name!r} here.") from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Worker):
        raise SetupError(f"There is no worker {attribute!r} in {name}.")
    return found


@cli.command(params=[setting_option("port"), setting_option("data_dir")])
@click.pass_obj
def demo(context: CliContext) -> None:
    """Open a restaurant with guests, VIPs and bots that come and go, until Ctrl-C.

    Its data is gone afterwards, unless a --data-dir is given.
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
        # It was told to stop before it was up, which is no less orderly.
        pass
    say("The restaurant is closed.")


@cli.command(params=DATABASE_OPTIONS)
@click.pass_obj
def migrate(context: CliContext) -> None:
    """Bring the tables of the database up to date."""
    from daybook.api.server.database import prepare

    with context.conninfo(say) as conninfo:
        applied = prepare(conninfo)
    for name in applied:
        echo(f"Applied {name}.")
    if not applied:
        echo("The database is up to date.")


class Benches(click.Group):
    """Every module of the package `bench` that has a `command`; loaded when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        package = importlib.import_module("bench")
        found = pkgutil.iter_modules(package.__path__)
        return [module.name for module in found if not module.ispkg]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"bench.{cmd_name}")
        command: click.Command | None = getattr(module, "command", None)
        if command is not None:
            command.params += [one for one in DATABASE_OPTIONS if one not in command.params]
        return command


@click.group("bench", cls=Benches, params=DATABASE_OPTIONS)
def benches() -> None:
    """Measure how fast Daybook is on this machine."""


# Benchmarks are part of a checkout, not of the wheel: there `bench` would be a package of the user.
if (CHECKOUT / "pyproject.toml").exists() and (CHECKOUT / "bench").is_dir():
    cli.add_command(benches)

for looking in (*COMMANDS, *HISTORY_COMMANDS):
    looking.params += DATABASE_OPTIONS
    cli.add_command(looking)

for keeping in keys_group.commands.values():
    keeping.params += DATABASE_OPTIONS
cli.add_command(keys_group)
for one in quarantine_group.commands.values():
    one.params += DATABASE_OPTIONS
cli.add_command(quarantine_group)
check_command.params += DATABASE_OPTIONS
cli.add_command(audit_group)
pg_command.params += DATABASE_OPTIONS
cli.add_command(pg_command)
rebuild_command.params += DATABASE_OPTIONS
cli.add_command(rebuild_command)


def main() -> None:
    """What cannot be set up is said in one sentence; a traceback means a defect."""
    try:
        with stop_signals() as signals:
            cli(prog_name="daybook", obj=CliContext(signals))
    except SetupError as error:
        say(str(error))
        sys.exit(2)
