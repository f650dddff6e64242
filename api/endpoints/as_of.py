"""The parameter `asOf`: an instant, or a position of the log."""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypedDict, TypeVar

from msgspec import Meta
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from starlette.requests import Request

from daybook.api.http.request_reader import bad_request
from daybook.api.http.timestamps import Moment as MomentText
from daybook.api.http.timestamps import moment
from daybook.domain.errors import BadValueError
from daybook.domain.values import read_instant
from daybook.projections.time_travel.lists import PastMoment, moment_of
from daybook.projections.time_travel.state_as_of import READ_BOUNDS, position_of

POSITION_DIGITS_MAX = 18
TEXT_CHARACTERS_MAX = 40

AsOf = Annotated[
    str,
    Meta(
        description="Reads the past: an instant (ISO 8601, with its zone) or a log position.",
        examples=["2026-03-01T12:00:00Z", "4711"],
        extra_json_schema={"minLength": 1, "maxLength": TEXT_CHARACTERS_MAX},
    ),
]
T = TypeVar("T")
Reader = AsyncConnection[TupleRow]


class ThenJSON(TypedDict):
    position: int
    at: MomentText | None


def then_json(then: PastMoment) -> ThenJSON:
    return {"position": then.position, "at": moment(then.at) if then.at else None}


async def read_then(
    request: Request, text: str, query: Callable[[Reader, int], Awaitable[T]]
) -> tuple[PastMoment, T]:
    """Runs a query at the past position that `text` names; returns that moment and the result."""

    async def read(reader: Reader) -> tuple[PastMoment, T]:
        position = await find_position(reader, text)
        return await moment_of(reader, position), await query(reader, position)

    result: tuple[PastMoment, T] = await request.app.service.read(read)
    return result


def refuse_cursor(cursor: str | None) -> None:
    if cursor is not None:
        raise bad_request("bad_parameter", "The parameters asOf and cursor cannot be combined.")


async def find_position(reader: Reader, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= POSITION_DIGITS_MAX:
        ((_, head),) = await (await reader.execute(READ_BOUNDS)).fetchall()
        if int(text) > head:
            raise bad_request(
                "bad_parameter", f"The parameter asOf is after the end of the log, {head}."
            )
        return int(text)
    try:
        instant = read_instant(text)
    except BadValueError:
        raise bad_request(
            "bad_parameter",
            "The parameter asOf must be a position, or an instant such as 2026-03-01T12:00:00Z.",
        ) from None
    return await position_of(reader, instant)
