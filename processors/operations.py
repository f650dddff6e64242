"""Operations: what was accepted is carried out, in the order in which it was accepted.

Each is one transaction, so whoever dies over it leaves it as it was, and another process finds it.
While commands wait long for their turn, little is added to them.
"""

import asyncio
import logging
import random
from typing import ClassVar
from uuid import UUID

from domain.errors import Refusal
from domain.operation import Message
from domain.operations import CarryOut, Postpone
from eventlog.errors import ConflictError, OutcomeUnknownError, UnavailableError
from processors.runtime import POLL_SECONDS, Processor, Runtime, Session
from projections.operations import find_due

_log = logging.getLogger("daybook")

ACTOR = "system:operations"
DEED = "carry out"
AT_ONCE_MAX = 200
WHEN_BUSY_MAX = 50
BUSY_SECONDS = 0.05
# Others may have been waiting for this one's place: there is a look this often, bell or not.
LOOK_SECONDS = 0.1
ERROR_CHARACTERS_MAX = 2000

# Another has done it, or the database was away: the next look shows what is left.
_NOT_NOW = (Refusal, UnavailableError, OutcomeUnknownError, ConflictError)


class Operations(Processor):
    name: ClassVar[str] = "operations"
    pause_seconds: ClassVar[float] = 0.01

    async def work(self, runtime: Runtime, session: Session) -> float:
        is_busy = runtime.committer.urgent_seconds > BUSY_SECONDS
        limit = WHEN_BUSY_MAX if is_busy else AT_ONCE_MAX
        due = await find_due(
            session.connection, patience_seconds=session.patience_seconds, limit=limit
        )
        if not due:
            return POLL_SECONDS
        await asyncio.gather(*(_carry_out(runtime, *one) for one in due))
        return 0 if len(due) == limit else LOOK_SECONDS


async def _carry_out(runtime: Runtime, operation_id: UUID, items: tuple[Message, ...]) -> None:
    command = CarryOut(operation_id=operation_id, items=items)
    try:
        await runtime.committer.submit(command, runtime.origin(ACTOR, operation_id, DEED))
    except _NOT_NOW:
        return
    except Exception as error:
        _log.exception("Operation %s could not be carried out and is tried again.", operation_id)
        await _postpone(runtime, operation_id, str(error)[:ERROR_CHARACTERS_MAX])


async def _postpone(runtime: Runtime, operation_id: UUID, error: str) -> None:
    jitter = random.random()  # noqa: S311 (spreads retries)
    postpone = Postpone(operation_id=operation_id, error=error, jitter=jitter)
    await runtime.send([(postpone, runtime.origin(ACTOR, operation_id, f"postpone {jitter}"))])
