"""A log with something of everything in it, and the commands that show and move it."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
from click.testing import CliRunner, Result

from daybook.api.server.signals import StopSignals
from daybook.cli.main import CliContext, cli
from daybook.domain.jobs.work import Outcome
from daybook.domain.orders.order import OrderKind
from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.connections import owner_conninfo
from tests.support.committer import open_submitter, rows
from tests.support.jobs import Workshop, raw

FILL_LOG = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, correlation_id, actor)
SELECT id, 1, 'order.created',
       convert_to(json_build_object('at', now(), 'order_id', id, 'number', n,
                                    'kind', 'NORMAL', 'attempts_max', 3)::text, 'UTF8'),
       id, id, 'test'
FROM (SELECT gen_random_uuid() AS id, n FROM generate_series(1, %(count)s) AS n) AS made
"""


def run(database: str, *arguments: str | Path) -> Result:
    """Runs a command in this process; the sentence of a SetupError counts as its output."""
    flags = [*map(str, arguments), "--database-url", database]
    done = CliRunner().invoke(cli, flags, obj=CliContext(StopSignals()))
    if isinstance(done.exception, SetupError):
        done.stderr_bytes = (done.stderr_bytes or b"") + str(done.exception).encode()
        done.exit_code = 2
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def fill(database: str) -> None:
    """Orders and jobs that wait, are worked on, are done, dead, deleted; and gaps between them."""

    async def work() -> None:
        async with open_submitter(database) as submitter:
            bots = [await submitter.bot() for _ in range(2)]
            for kind in (OrderKind.NORMAL, OrderKind.VIP, OrderKind.NORMAL):
                await submitter.order(kind)
            taken = await submitter.claim(bots[0])
            assert taken is not None
            await submitter.complete(taken)
            await submitter.claim(bots[1])
            workshop = Workshop(submitter)
            await workshop.job(payload=raw('{"a":\n [1, "\\u2028"]}'), unique_key="once")
            await workshop.jobs(3)
            first, second = await workshop.claim(2)
            await workshop.finish(first, Outcome.DONE, result=raw('"done"'))
            await workshop.finish(second, Outcome.RETRY, error="no luck", retry_delay_seconds=60.0)
            # A number that is drawn and given back, as by a transaction that fails.
            rows(database, "SELECT nextval('stored_events_notification_id_seq')")
            await submitter.order()

    asyncio.run(work())


def fill_many(database: str, count: int) -> None:
    with psycopg.connect(owner_conninfo(database), autocommit=True) as connection:
        connection.execute(FILL_LOG, {"count": count})


def log_size(database: str) -> int:
    ((count,),) = rows(database, "SELECT count(*) FROM stored_events")
    return int(count)


def table(database: str, name: str) -> list[Any]:
    """Its rows, as dicts."""
    query = f"SELECT to_jsonb(one) FROM {name} AS one ORDER BY to_jsonb(one)"
    return [row for (row,) in rows(database, query)]
