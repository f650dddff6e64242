"""The upper bound: one table and three statements that choose jobs in Daybook's order.

It keeps no history and checks nothing; a job whose worker dies is lost.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import psycopg
from psycopg.types.json import set_json_loads

from bench.queues.worker import PAYLOAD, QUEUE, TYPE, Queue

CREATE_JOBS = """
CREATE TABLE bare_jobs (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    claimed_at timestamptz,
    run_at     timestamptz NOT NULL DEFAULT now(),
    priority   smallint    NOT NULL DEFAULT 5,
    queue      text        NOT NULL,
    type       text        NOT NULL,
    payload    jsonb       NOT NULL
)
"""
CREATE_READY_INDEX = """
CREATE INDEX bare_jobs_ready_idx ON bare_jobs (queue, priority, id) WHERE claimed_at IS NULL
"""
INSERT_JOBS = """
INSERT INTO bare_jobs (queue, type, payload)
SELECT queue, type, payload::jsonb
FROM unnest(%(queues)s::text[], %(types)s::text[], %(payloads)s::text[])
     AS new (queue, type, payload)
"""
CLAIM_JOBS = """
UPDATE bare_jobs SET claimed_at = now()
FROM (
    SELECT id FROM bare_jobs
    WHERE claimed_at IS NULL AND queue = %(queue)s AND run_at <= now()
    ORDER BY priority, id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
) AS ready
WHERE bare_jobs.id = ready.id
RETURNING bare_jobs.id, bare_jobs.type, bare_jobs.payload
"""
COMPLETE_JOBS = "DELETE FROM bare_jobs WHERE id = ANY(%(ids)s::bigint[])"


class BareTable:
    """Blocking, because nothing else runs in the process."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._cursor = connection.cursor(binary=True)

    async def prepare(self) -> None:
        self._cursor.execute(CREATE_JOBS)
        self._cursor.execute(CREATE_READY_INDEX)

    async def create(self, count: int, size: int) -> None:
        for _ in range(0, count, size):
            new = {
                "queues": [QUEUE] * size,
                "types": [TYPE] * size,
                "payloads": [orjson.dumps(PAYLOAD).decode() for _ in range(size)],
            }
            self._cursor.execute(INSERT_JOBS, new, prepare=True)

    async def drain(self, size: int) -> int:
        count = 0
        while claimed := self._claim(size):
            done = {"ids": [id for id, _type, _payload in claimed]}
            self._cursor.execute(COMPLETE_JOBS, done, prepare=True)
            count += len(claimed)
        return count

    def _claim(self, limit: int) -> list[tuple[int, str, Any]]:
        self._cursor.execute(CLAIM_JOBS, {"queue": QUEUE, "limit": limit}, prepare=True)
        return self._cursor.fetchall()


@asynccontextmanager
async def opened(conninfo: str) -> AsyncIterator[Queue]:
    set_json_loads(orjson.loads)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        yield BareTable(connection)
