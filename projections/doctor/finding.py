"""What a doctor says: what was looked at, how it is, and what to do next."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct
from psycopg.rows import TupleRow

from daybook.eventlog.postgres.pipeline import Connection

NAMED_MAX = 5


class Health(StrEnum):
    GOOD = "good"
    NOTICE = "notice"
    """Somebody may want to know."""

    BAD = "bad"


class Finding(Struct, frozen=True):
    what: str
    health: Health
    sentence: str
    next_step: str = ""


Examination = Callable[[Connection], Awaitable[Finding]]


async def rows_of(
    connection: Connection, query: str, parameters: dict[str, Any] | None = None
) -> list[TupleRow]:
    return await (await connection.execute(query.encode(), parameters)).fetchall()
