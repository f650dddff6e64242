"""Finding: the result of one doctor check, with the operator's next step."""

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
    BAD = "bad"


class Finding(Struct, frozen=True):
    what: str
    health: Health
    sentence: str
    next_step: str = ""


Check = Callable[[Connection], Awaitable[Finding]]


async def rows_of(
    connection: Connection, query: str, parameters: dict[str, Any] | None = None
) -> list[TupleRow]:
    return await (await connection.execute(query.encode(), parameters)).fetchall()
