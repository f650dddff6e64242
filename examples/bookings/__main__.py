"""`python -m examples.bookings …`: command line of the example."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click
from rich.console import Console

from daybook import AsyncClient, DaybookError, JSONLines, Worker
from examples.bookings import demo, transfers
from examples.bookings.office import Office, open_office
from examples.bookings.serving import answering, listen
from examples.bookings.settings import BadSettings, Settings, from_environment
from examples.bookings.standins import StandIns, new_standins
from examples.bookings.web import web_app
from examples.bookings.worker import bookings_worker, transfers_worker

BOOKINGS_COUNT = 10
DEMO_SECONDS_MAX = 60
UNANSWERED = "returned without completing response"
# Safe in the demo, because only the stand-ins receive requests.
DEMO_FLAGS = {
    "INVOICING_ENABLED": "true",
    "SEND_EMAILS": "true",
    "EMAIL_ADMIN_TO": "office@example.com, boss@example.com",
    "BOOKINGS_LOOK_AGAIN_SECONDS": "1",
    "BOOKINGS_ANSWER_SECONDS_MAX": "1",
}


@click.group(invoke_without_command=True)
@click.option(
    "--all", "everything", is_flag=True, help="Start all programs and create ten bookings."
)
@click.pass_context
def cli(ctx: click.Context, everything: bool) -> None:
    """A firm that rents out machines. Daybook has to run: start it with ./run."""
    if everything:
        run(show_everything(from_environment(**DEMO_FLAGS)))
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cli.command()
def serve() -> None:
    """Run stand-ins, web application and workers in one process, until Ctrl-C."""
    run(serve_all(from_environment()))


@cli.command()
def worker() -> None:
    """Run only the workers, until Ctrl-C; may run in several processes."""
    run(work(from_environment()))


@cli.command()
@click.argument("count", type=click.IntRange(1, 1000), default=BOOKINGS_COUNT)
def book(count: int) -> None:
    """Create and pay bookings."""
    run(book_some(from_environment(), count))


@cli.command()
@click.argument("count", type=click.IntRange(1, 100), default=BOOKINGS_COUNT)
def show(count: int) -> None:
    """Show the newest bookings and their jobs."""
    run(show_newest(from_environment(), count))


async def show_everything(settings: Settings) -> None:
    standins = new_standins()
    async with (
        open_firm(settings, standins) as office,
        AsyncClient(settings.daybook_url, key=settings.daybook_key) as client,
    ):
        demo.inject_failures(standins)
        booking_ids = await demo.book(office, BOOKINGS_COUNT)
        async with office.database.connection() as connection:
            await transfers.order_transfer(
                connection, from_depot="north", to_depot="south", counts={"Excavator": 1}
            )
        try:
            async with asyncio.timeout(DEMO_SECONDS_MAX):
                await demo.all_done(client, booking_ids)
        except TimeoutError:
            click.echo(f"Not everything is done after {DEMO_SECONDS_MAX} seconds.", err=True)
        Console().print(await demo.overview(office, client, BOOKINGS_COUNT))


async def serve_all(settings: Settings) -> None:
    stop = signalled()
    async with open_firm(settings, new_standins()):
        await stop.wait()


async def work(settings: Settings) -> None:
    stop = signalled()
    async with open_office(settings) as office, working(await make_workers(office)):
        await stop.wait()


async def book_some(settings: Settings, count: int) -> None:
    async with open_office(settings) as office:
        booking_ids = await demo.book(office, count)
    click.echo(f"Confirmed: {', '.join(map(str, booking_ids))}.")


async def show_newest(settings: Settings, count: int) -> None:
    async with (
        open_office(settings) as office,
        AsyncClient(settings.daybook_url, key=settings.daybook_key) as client,
    ):
        Console().print(await demo.overview(office, client, count))


@asynccontextmanager
async def open_firm(settings: Settings, standins: StandIns) -> AsyncIterator[Office]:
    """Runs web application, stand-ins and workers while the context is open."""
    with listen(settings.web_port) as web, listen(settings.standins_port) as others:
        async with open_office(settings) as office:
            apps = {web: web_app(office), others: standins.app}
            async with answering(apps), working(await make_workers(office)):
                yield office


@asynccontextmanager
async def working(workers: Sequence[Worker]) -> AsyncIterator[None]:
    """Runs the workers. If one ends by itself, which means a defect, all end."""
    async with asyncio.TaskGroup() as group:
        for one in workers:
            group.create_task(one.serve())
        try:
            yield
        finally:
            for one in workers:
                one.stop()


async def make_workers(office: Office) -> list[Worker]:
    settings = office.settings
    async with AsyncClient(settings.daybook_url, key=settings.daybook_key) as client:
        await transfers.prepare_queue(client)
    return [bookings_worker(office), transfers_worker(office)]


def signalled() -> asyncio.Event:
    """Returns an event that Ctrl-C and SIGTERM set."""
    event = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event


def run(program: Coroutine[Any, Any, None]) -> None:
    """Logs to stderr, one line of JSON per record."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("httpx2", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # A stand-in cuts connections on purpose; uvicorn would log an error.
    logging.getLogger("uvicorn.error").addFilter(lambda line: UNANSWERED not in line.getMessage())
    try:
        asyncio.run(program)
    except (BadSettings, DaybookError) as error:
        click.echo(str(error), err=True)
        sys.exit(2)


if __name__ == "__main__":
    cli(prog_name="python -m examples.bookings")
