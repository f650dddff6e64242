"""Interface of processors, and the runtime and session that they get.

A processor keeps no state: it reads the live tables, which are never stale, and sends
commands. If several processes send the same command, the claim or bot that it names lets one pass.
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

PROCESSING_SECONDS = 10.0
BATCH_MAX = 500
# Longest time between two runs: a notification may be lost.
POLL_SECONDS = 1.0
# Delay after a command that was not accepted.
AGAIN_SECONDS = 0.1

# The domain refused, or the database was unavailable: the next run reads the remaining work.
_NOT_ACCEPTED = (Refusal, UnavailableError, OutcomeUnknownError, ConflictError)


class OrderRules(Struct, frozen=True, kw_only=True):
    """Rules for claims of orders. Each claim records the values that it was made with."""

    delay_seconds: float = PROCESSING_SECONDS
    """From a claim to its due time."""

    aging_seconds: float | None = None
    """Age at which a NORMAL order ranks with VIP orders; None for never."""


class RetentionRules(Struct, frozen=True, kw_only=True):
    idempotency_keep_days: int = 30
    """How long the response to an Idempotency-Key is stored."""


STANDARD_ORDER_RULES = OrderRules()
STANDARD_RETENTION_RULES = RetentionRules()


class Runtime(Struct, frozen=True, eq=False, kw_only=True):
    """Shared by all processors of a process."""

    instance: UUID
    """The id of this process."""

    conninfo: str
    committer: Committer
    notifier: Notifier
    order_rules: OrderRules = STANDARD_ORDER_RULES
    retention_rules: RetentionRules = STANDARD_RETENTION_RULES

    def origin(self, actor: str, cause: UUID, action: str) -> Origin:
        """Derives the command id from cause, action and process. Two processes never share one,
        because a committer that lost its connection finds its own batch by command id."""
        return Origin(command_id=uuid5(cause, f"{action} {self.instance}"), actor=actor)

    async def send(self, commands: Iterable[tuple[Command[Any], Origin]]) -> bool:
        """Returns whether all were accepted. Raises unexpected errors only."""
        return None not in await self.send_all(commands)

    async def send_all(
        self, commands: Iterable[tuple[Command[Any], Origin]]
    ) -> list[Receipt | None]:
        """Returns a receipt for each accepted command, None for each other. Raises unexpected
        errors only."""
        futures = [self.committer.submit(command, origin) for command, origin in commands]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, _NOT_ACCEPTED):
                raise outcome
        return [outcome if isinstance(outcome, Receipt) else None for outcome in outcomes]


class Session(Struct, frozen=True, eq=False):
    """The database session of the leader or of a standby process."""

    connection: AsyncConnection[TupleRow]
    standby_delay_seconds: float
    """How long work must have been overdue before this process does it: 0 for the leader. A
    standby process steps in only if the leader seems to hang."""

    clock: DatabaseClock = field(default_factory=DatabaseClock)

    @property
    def is_leader(self) -> bool:
        return self.standby_delay_seconds == 0


WakesOn = tuple[Decider[Any], ...] | None
"""Aggregate kinds whose events wake a processor; None for all."""


class Processor:
    name: ClassVar[str]
    wakes_on: ClassVar[WakesOn]
    """The aggregate kinds that its queries read. Changes to other kinds are seen by the next poll,
    up to 1 s later."""

    pause_seconds: ClassVar[float]
    """Minimum pause between two runs."""

    min_interval_seconds: ClassVar[float] = 0
    """Time after a run in which notifications are ignored. Under load they arrive all the time."""

    async def work(self, runtime: Runtime, session: Session) -> float:
        """Does the due work; returns the seconds until more work is known to be due."""
        raise NotImplementedError

    async def close(self) -> None:
        """Cancels background tasks and closes clients."""
