"""Compares the drain rate of a long queue with that of a short one."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import uvloop
from msgspec import Struct

from bench.harness.rounds import Contender, Round, console, measure
from bench.harness.scratch_database import scratch_database, tidy
from bench.harness.service import service
from bench.queues.daybook import NEW_JOB, connected, drain
from bench.workloads.order_lifecycle import run
from daybook.eventlog.postgres.connections import owner_conninfo

SHORT = 10_000
BATCH = 100
# Jobs that a round drains, and that are refilled after it.
DRAINED = 5_000
RATIO_MIN = 0.8

# Copies of the last job that the service created, with all columns. Their ids ascend like the
# service's, because the order of rows in the index affects the result.
COPY_JOB = """
WITH made AS MATERIALIZED (
    SELECT number,
           (lpad(to_hex(number), 12, '0') || right(md5(number::text), 20))::uuid AS id
    FROM (SELECT nextval('job_numbers') AS number FROM generate_series(1, %(count)s)) AS drawn
), copied AS (
    INSERT INTO jobs
    SELECT copy.*
    FROM made,
         (SELECT jobs AS job FROM jobs ORDER BY number DESC LIMIT 1) AS pattern,
         jsonb_populate_record(job, jsonb_build_object('id', id, 'number', number)) AS copy
)
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, correlation_id, actor)
SELECT id, 1, topic,
       convert_to((data || jsonb_build_object('job_id', id, 'number', number))::text, 'UTF8'),
       id, id, actor
FROM made,
     (SELECT topic, actor, convert_from(state, 'UTF8')::jsonb AS data
      FROM stored_events
      WHERE topic = 'job.created'
      ORDER BY notification_id DESC
      LIMIT 1) AS pattern
"""


class Backlog(Struct, frozen=True):
    """A service with pending jobs."""

    database: str
    port: int

    def start(self, count: int) -> None:
        uvloop.run(self._create_first())
        self.fill(count - 1)

    def fill(self, count: int) -> None:
        with psycopg.connect(owner_conninfo(self.database), autocommit=True) as owner:
            owner.execute(COPY_JOB, {"count": count})
        tidy(self.database)

    def drain(self, _seconds: float) -> Round:
        drained = run(self._drain_some())
        self.fill(drained.count)
        return drained

    async def _create_first(self) -> None:
        async with connected(self.port) as creator:
            await creator.enqueue_ids([NEW_JOB])

    async def _drain_some(self) -> Round:
        async with connected(self.port) as worker:
            began = time.perf_counter()
            count = await drain(worker, BATCH, jobs_max=DRAINED)
            return Round(count=count, seconds=time.perf_counter() - began, latencies=[])


def measure_backlog(server: str, *, rounds: int, pending: int) -> None:
    names = {count: f"{count:,} pending" for count in (SHORT, pending)}
    with ExitStack() as stack:
        backlogs = {
            name: stack.enter_context(_backlog(server, count)) for count, name in names.items()
        }
        contenders = [Contender(name, backlog.drain) for name, backlog in backlogs.items()]
        results = measure(contenders, rounds=rounds, seconds=0)
    short, long = results[names[SHORT]].rate, results[names[pending]].rate
    console.print(
        f"Drained/s by {BATCH}, 1 process: {long:,.0f} with {pending:,} pending, {short:,.0f} with "
        f"{SHORT:,}: {long / short:.2f} (to reach: {RATIO_MIN})"
    )


@contextmanager
def _backlog(server: str, count: int) -> Iterator[Backlog]:
    with scratch_database(server) as database, service(database) as port:
        backlog = Backlog(database, port)
        with console.status(f"{count:,} jobs are being created"):
            backlog.start(count)
        yield backlog
