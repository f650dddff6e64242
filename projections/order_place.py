"""Where a page of the list of orders ended, and the opaque text by which a client goes on there."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2s
from typing import Annotated, Self

from msgspec import DecodeError, Meta, Struct, json

from domain.order import OrderStatus

# In the order in which a list shows them.
SECTIONS = (
    OrderStatus.PENDING,
    OrderStatus.PROCESSING,
    OrderStatus.COMPLETE,
    OrderStatus.DEAD,
)
NUMBER_MAX = 2**63 - 1
CURSOR_LENGTH_MAX = 200
# A cursor gives no rights, so this is no signature: it tells a damaged one from ours.
_CHECK_BYTES = 6


class BadCursorError(Exception):
    """The cursor is not one that this list gave out."""

    def __init__(self) -> None:
        super().__init__(
            "The cursor is not one that this list gave out: "
            "send nextCursor of the page before, with the same status."
        )


class Place(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    only: OrderStatus | None
    """The status that the list is of; None when it is of all."""

    section: OrderStatus
    rank: Annotated[int, Meta(ge=0, le=1)]
    number: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]

    @classmethod
    def beginning(cls, only: OrderStatus | None, section: OrderStatus | None = None) -> Self:
        """Before the first order of a section, or of the whole list."""
        first = section or only or SECTIONS[0]
        return cls(only, first, 0, 0 if first is OrderStatus.PENDING else NUMBER_MAX)

    @classmethod
    def parse(cls, cursor: str, only: OrderStatus | None) -> Self:
        try:
            if len(cursor) > CURSOR_LENGTH_MAX:
                raise BadCursorError
            place = json.decode(urlsafe_b64decode(cursor.encode("ascii"))[:-_CHECK_BYTES], type=cls)
        except (DecodeError, ValueError) as error:
            raise BadCursorError from error
        # Another text for the same place is not ours either.
        if place.only is not only or place.cursor() != cursor:
            raise BadCursorError
        return place

    def cursor(self) -> str:
        text = json.encode(self)
        check = blake2s(text, digest_size=_CHECK_BYTES).digest()
        return urlsafe_b64encode(text + check).decode()
