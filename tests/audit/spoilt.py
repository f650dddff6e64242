"""All bad histories, at least three for each invariant that the log alone proves."""

from tests.audit import spoilt_clock, spoilt_jobs, spoilt_kitchen, spoilt_log, spoilt_tickets
from tests.audit.spoiling import SPOILT, Spoil

# They register their histories when they are imported.
MODULES = (spoilt_log, spoilt_kitchen, spoilt_jobs, spoilt_tickets, spoilt_clock)

__all__ = ["MODULES", "SPOILT", "Spoil"]
