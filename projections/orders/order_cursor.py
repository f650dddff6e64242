"""Where a page of the list of orders ended."""

from typing import Annotated, Self

from msgspec import Meta, Struct

from daybook.domain.orders.order import OrderStatus
from daybook.projections.page_cursor import NUMBER_MAX, BadCursorError, read_cursor, write_cursor

# In the order in which a list shows them.
SECTIONS = (OrderStatus.PENDING, OrderStatus.PROCESSING, OrderStatus.COMPLETE, OrderStatus.DEAD)


class OrderCursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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
        place = read_cursor(cursor, cls)
        if place.only is not only or place.section is not (only or place.section):
            raise BadCursorError
        return place

    def cursor(self) -> str:
        return write_cursor(self)
