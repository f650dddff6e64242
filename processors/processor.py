"""What a process manager is, and what it gets to work with.

A process manager needs no memory: it looks at the live tables, which are the fold of the log and
never stale, and sends commands about what it finds. Several may find the same; the claim or the
bot that a command names lets one of them through and refuses the others.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar
from uuid import UUID, uuid5

from msgspec import Struct, field
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.command import Command
from daybook.domain.errors import Refusal
from daybook.domain.event import Decider
from daybook.eventlog.errors import ConflictError, OutcomeUnknownError, UnavailableError
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.origin import Origin, Receipt
from daybook.eventlog.writing.committer import Committer
from daybook.processors.database_clock import DatabaseClock

DELAY_SECONDS = 10.0
BATCH_MAX = 500
# Nobody trusts a bell alone: who hears nothing looks by himself.
POLL_SECONDS = 1.0
# After a command that was not taken, although there seemed to be a reason for it.
AGAIN_SECONDS = 0.1

# The rule said no, or the database was away: the next look shows what is left to do.
_NOT_TAKEN = (Refusal, UnavailableError, OutcomeUnknownError, ConflictError)


class OrderRules(Struct, frozen=True, kw_only=True):
    """Rules for claims of orders. Each claim records the values that it was made with."""

    delay_seconds: float = DELAY_SECONDS
    """From a claim to its due time."""

    aging_seconds: float | None = None
    """Age at which a NORMAL order ranks with VIP orders; None for never."""


class RetentionRules(Struct, frozen=True, kw_only=True):
    idempotency_keep_days: int = 30
    """How long the response to an Idempotency-Key is stored."""


STANDARD_ORDER_RULES = OrderRules()
STANDARD_RETENTION_RULES = RetentionRules()


class Runtime(Struct, frozen=True, eq=False, kw_only=True):
    """What lives as long as the process and is shared by all that work in it."""

    instance: UUID
    """This process, told from all others."""

    conninfo: str
    committer: Committer
    notifier: Notifier
    order_rules: OrderRules = STANDARD_ORDER_RULES
    retention_rules: RetentionRules = STANDARD_RETENTION_RULES

    def origin(self, actor: str, cause: UUID, deed: str) -> Origin:
        """The same deed has the same command id, in this process. Two processes never share one:
        a committer that lost its connection asks by it whether its own batch was committed."""
        return Origin(command_id=uuid5(cause, f"{deed} {self.instance}"), actor=actor)

    async def send(self, commands: Iterable[tuple[Command[Any], Origin]]) -> bool:
        """Returns whether all of them were taken. Only a defect is raised."""
        return None not in await self.send_all(commands)

    async def send_all(
        self, commands: Iterable[tuple[Command[Any], Origin]]
    ) -> list[Receipt | None]:
        """The receipts of those that were taken, and None for each other. Only a defect is
        raised."""
        futures = [self.committer.submit(command, origin) for command, origin in commands]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, _NOT_TAKEN):
                raise outcome
        return [outcome if isinstance(outcome, Receipt) else None for outcome in outcomes]


class Session(Struct, frozen=True, eq=False):
    """A look at the database, by the process whose turn it is or by one that stands by."""

    connection: AsyncConnection[TupleRow]
    standby_delay_seconds: float
    """How long a thing must have been left undone. Who stands by leaves it to the other, and
    steps in only if that one seems to sleep."""

    clock: DatabaseClock = field(default_factory=DatabaseClock)
    """As this process has watched it so far."""

    @property
    def is_leader(self) -> bool:
        return self.standby_delay_seconds == 0


WakesOn = tuple[Decider[Any], ...] | None
"""The kinds of aggregates for which somebody is woken; None for all of them."""


class Processor:
    """Something that the service brings about by itself."""

    name: ClassVar[str]
    wakes_on: ClassVar[WakesOn]
    """Whatever it looks at, so that what happens to it is seen at once; None for everything. What
    is missing is seen a second later, by the look that nobody rings for."""

    pause_seconds: ClassVar[float]
    """How long it rests between two looks, however much happens."""

    min_interval_seconds: ClassVar[float] = 0
    """How long after a look it does not hear the bell, which under load never stops ringing."""

    async def work(self, runtime: Runtime, session: Session) -> float:
        """Does what there is to do; returns after how many seconds there is more for certain."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ends what it has under way."""
