"""`daybook bench follow`: throughput of a follower, and its lag behind writers."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import click
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from bench.harness.rounds import Contender, Round, console, measure, show
from bench.harness.scratch_database import describe_server, scratch_database
from bench.workloads.order_lifecycle import MAPPER, life_cycles, run
from bench.write import DatabaseChoice
from daybook.domain.event import Event
from daybook.eventlog.codec import FollowedEvent
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.eventlog.reading.follower import PAUSE_SECONDS, Follower
from daybook.eventlog.writing.committer import Committer
from daybook.projections.registry import LIVE_TABLES

# Batch size of a follower, and the number of events that it reads.
READS = {1: 1_000, 100: 50_000, 500: 200_000, 2_000: 200_000}
BASELINE = "one event a transaction"

CREATE_TALLY = "CREATE TABLE tally (topic text PRIMARY KEY, count bigint NOT NULL)"
GRANT_TALLY = "GRANT ALL ON tally TO daybook_service"
ADD_TO_TALLY = """
INSERT INTO tally SELECT * FROM unnest(%(topics)s::text[], %(counts)s::bigint[])
ON CONFLICT (topic) DO UPDATE SET count = tally.count + excluded.count
"""
FILL_LOG = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, correlation_id, actor)
SELECT id, 1, 'order.created',
       convert_to(json_build_object('at', now(), 'order_id', id, 'number', n,
                                    'kind', 'NORMAL', 'attempts_max', 3)::text, 'UTF8'),
       id, id, 'bench'
FROM (SELECT gen_random_uuid() AS id, n FROM generate_series(1, %(count)s) AS n) AS made
"""
FORGET = "TRUNCATE followers, tally"


class Tally:
    """A minimal read model: the number of events by topic."""

    name = "tally"
    kinds: tuple[type[Event], ...] | None = None
    needs_payload = True
    pause_seconds = PAUSE_SECONDS

    def __init__(self) -> None:
        self.decided: list[float] = []

    async def apply(
        self, connection: AsyncConnection[TupleRow], events: Sequence[FollowedEvent]
    ) -> None:
        counts = Counter(event.topic for event in events)
        columns = {"topics": [*counts.keys()], "counts": [*counts.values()]}
        await connection.execute(ADD_TO_TALLY, columns)
        self.decided += [one.event.at.timestamp() for one in events]


@click.command("follow")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=3.0, show_default=True, help="Length of a round under load.")
@click.pass_obj
def command(choice: DatabaseChoice, rounds: int, seconds: float) -> None:
    """Measure events/s of a follower, and its lag while 64 callers write."""
    with ExitStack() as stack:
        server = stack.enter_context(choice.conninfo(console.print))
        console.print(describe_server(server))
        readers = [_reader(stack, server, size, count) for size, count in READS.items()]
        reading = measure(readers, rounds=rounds, seconds=seconds)
        loaded = stack.enter_context(_tallied(server))
        lagging = measure(
            [Contender("follower under load", partial(_lag, loaded))],
            rounds=rounds,
            seconds=seconds,
        )
    show("Catching up", "events/s", reading, baseline=BASELINE)
    show(
        "Behind 64 callers: time from decided to processed",
        "events/s",
        lagging,
        baseline="follower under load",
    )


@contextmanager
def _tallied(server: str, events_count: int = 0) -> Iterator[str]:
    with scratch_database(server) as conninfo:
        with psycopg.connect(owner_conninfo(conninfo), autocommit=True) as owner:
            owner.execute(CREATE_TALLY)
            owner.execute(GRANT_TALLY)
            owner.execute(FILL_LOG, {"count": events_count})
        yield conninfo


def _reader(stack: ExitStack, server: str, batch_max: int, events_count: int) -> Contender:
    conninfo = stack.enter_context(_tallied(server, events_count))
    name = BASELINE if batch_max == 1 else f"batches of {batch_max:,}"
    return Contender(name, partial(_catch_up, conninfo, batch_max))


def _catch_up(conninfo: str, batch_max: int, _seconds: float) -> Round:
    with psycopg.connect(owner_conninfo(conninfo), autocommit=True) as owner:
        owner.execute(FORGET)

    async def one_round() -> Round:
        follower = Follower(conninfo, Tally(), MAPPER, batch_max=batch_max)
        began = time.perf_counter()
        count = await follower.catch_up()
        took = time.perf_counter() - began
        await follower.close()
        return Round(count=count, seconds=took, latencies=[])

    return run(one_round())


def _lag(conninfo: str, seconds: float) -> Round:
    async def one_round() -> Round:
        async with Notifier(conninfo) as notifier:
            committer = Committer(
                conninfo, tables=LIVE_TABLES, mapper=MAPPER, on_commit=notifier.notify
            )
            lags: list[float] = []
            following = asyncio.create_task(_follow(conninfo, notifier, lags))
            async with committer:
                written = await life_cycles(committer.submit, 64, seconds)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        return Round(count=len(lags), seconds=written.seconds, latencies=lags)

    return run(one_round())


async def _follow(conninfo: str, notifier: Notifier, lags: list[float]) -> None:
    """Like Follower.run, but records the age of each event once its effect is committed."""
    tally = Tally()
    follower = Follower(conninfo, tally, MAPPER)
    await follower.catch_up()
    tally.decided.clear()
    with notifier.listener() as wake:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            await follower.wait_for_events(wake)
            await follower.catch_up()
            processed_at = time.time()
            lags += [processed_at - decided_at for decided_at in tally.decided]
            tally.decided.clear()
