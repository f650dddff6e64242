"""All invalid histories: at least three for each invariant that the log alone proves."""

from tests.audit.histories import (
    invalid_clock,
    invalid_jobs,
    invalid_log,
    invalid_orders,
    invalid_tickets,
)
from tests.audit.histories.mutate import SPOILT, Spoil

# They register their histories when they are imported.
MODULES = (invalid_log, invalid_orders, invalid_jobs, invalid_tickets, invalid_clock)

__all__ = ["MODULES", "SPOILT", "Spoil"]
