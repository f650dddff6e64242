"""The process managers, listed once. A new one is one line here."""

from processors.completions import Completions
from processors.dispatch import Dispatch
from processors.forgetting import Forgetting
from processors.leases import Leases
from processors.qstash import QStash
from processors.recovery import Recovery
from processors.runtime import Processor
from processors.scheduling import GRACE_SECONDS, Scheduling


def all_processors(qstash: QStash | None = None) -> list[Processor]:
    """With QStash, which calls back when an order is due, completions only do what it did not."""
    built_in: list[Processor] = [Recovery(), Dispatch(), Leases(), Forgetting()]
    if qstash is None:
        return [Completions(), *built_in]
    return [Completions(GRACE_SECONDS), Scheduling(qstash), *built_in]
