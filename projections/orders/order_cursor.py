"""Cursor of the list of orders."""

from typing import Annotated, Self

from msgspec import Meta, Struct

from daybook.domain.orders.order import OrderStatus
from daybook.projections.page_cursor import NUMBER_MAX, BadCursorError, read_cursor, write_cursor

# In the order of the list.
SECTIONS = (OrderStatus.PENDING, OrderStatus.PROCESSING, OrderStatus.COMPLETE, OrderStatus.DEAD)


class OrderCursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    only: OrderStatus | None  # status filter of the list
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
        parsed = read_cursor(cursor, cls)
        if parsed.only is not only or parsed.section is not (only or parsed.section):
            raise BadCursorError
        return parsed

    def cursor(self) -> str:
        return write_cursor(self)
