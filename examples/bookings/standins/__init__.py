"""Stand-ins for the vendors: real HTTP servers on one port that fail on demand."""

from msgspec import Struct
from starlette.applications import Starlette
from starlette.routing import Mount

from examples.bookings.standins.invoices import Invoices
from examples.bookings.standins.mail import Mail
from examples.bookings.standins.pos import PointOfSale
from examples.bookings.standins.standin import Received

__all__ = ["Invoices", "Mail", "PointOfSale", "Received", "StandIns"]


class StandIns(Struct, frozen=True):
    invoices: Invoices
    mail: Mail
    pos: PointOfSale

    @property
    def app(self) -> Starlette:
        routes = [
            Mount("/invoices", routes=self.invoices.routes),
            Mount("/mail", routes=self.mail.routes),
            Mount("/pos", routes=self.pos.routes),
        ]
        return Starlette(routes=routes)


def new_standins() -> StandIns:
    return StandIns(Invoices(), Mail(), PointOfSale())
