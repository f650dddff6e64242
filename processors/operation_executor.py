"""Operations: what was accepted is carried out, in the order in which it was accepted.

Each is one transaction, so whoever dies over it leaves it as it was, and another process finds it.
The committer takes them last, and a few at a time: nobody waits for a connection because of them.
"""

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

import psycopg

from daybook.domain.command import AllOrNothing, NotLoadedError
from daybook.domain.errors import NotFoundError, OperationOverError
from daybook.domain.messages.commands import ExecuteOperation, FailOperation
from daybook.domain.messages.operation import OPERATION, Operation, OperationStatus
from daybook.eventlog.errors import ConflictError, OutcomeUnknownError, UnavailableError
from daybook.eventlog.origin import Receipt
from daybook.processors.processor import POLL_SECONDS, Processor, Runtime, Session, WakesOn
from daybook.projections.messages.operations import DueOperation, find_due

_log = logging.getLogger("daybook.operations")

ACTOR = "system:operations"
DEED = "carry out"
AT_ONCE_MAX = 200
# Messages of operations that are carried out in one transaction.
TOGETHER_MAX = 1000
# Others may have been waiting for this one's place: there is a look this often, bell or not.
LOOK_SECONDS = 0.1
ERROR_CHARACTERS_MAX = 2000

# Another has done it, or the database was away: the next look shows what is left. It is not the
# operation's fault, so it is no attempt.
_NOT_NOW = (
    OperationOverError,
    NotFoundError,
    UnavailableError,
    OutcomeUnknownError,
    ConflictError,
    NotLoadedError,
)
# Of the database's errors those that what was asked for has brought about: its data, the rules for
# them, and the limits of a row. With any other, such as a missing right, no operation would fare
# better, and all would be given up.
_OWN_FAULTS = ("21", "22", "23", "54", "P0")


class Operations(Processor):
    name: ClassVar[str] = "operations"
    wakes_on: ClassVar[WakesOn] = (OPERATION,)
    pause_seconds: ClassVar[float] = 0.01
    # Most of what rings has accepted nothing for later.
    min_interval_seconds: ClassVar[float] = 0.03

    def __init__(self) -> None:
        self._has_begun = False

    async def work(self, runtime: Runtime, session: Session) -> float:
        self._begin(session)
        due = await find_due(
            session.connection, patience_seconds=session.standby_delay_seconds, limit=AT_ONCE_MAX
        )
        if not due:
            return POLL_SECONDS
        outcomes = await asyncio.gather(*(_carry_out_line(runtime, line) for line in lines(due)))
        if troubles := [one for one in outcomes if one is not None]:
            await _rest(troubles)
        return 0 if len(due) == AT_ONCE_MAX else LOOK_SECONDS

    def _begin(self, session: Session) -> None:
        if session.is_leader and not self._has_begun:
            context = {"lookMs": round(LOOK_SECONDS * 1000), "atOnceMax": AT_ONCE_MAX}
            _log.info("operations.begun", extra={"context": context})
        self._has_begun = session.is_leader


def lines(due: Sequence[DueOperation]) -> list[list[DueOperation]]:
    """Groups operations that share a lane into lines, each in the order of acceptance. Operations
    of a line follow one another, because events of concurrent writers enter the log in any
    order."""
    line_of: dict[tuple[str, str], list[DueOperation]] = {}
    for one in due:
        lanes = {(item.queue, item.partition) for item in one.items}
        joined = {id(line): line for lane in lanes if (line := line_of.get(lane)) is not None}
        line, *others = joined.values() if joined else ([],)
        for other in others:
            line += other
            for item in (item for operation in other for item in operation.items):
                line_of[item.queue, item.partition] = line
        line.append(one)
        line_of |= dict.fromkeys(lanes, line)
    places = {one.operation_id: place for place, one in enumerate(due)}
    found = {id(line): line for line in line_of.values()}
    return [sorted(line, key=lambda one: places[one.operation_id]) for line in found.values()]


def parts(line: Sequence[DueOperation]) -> Iterator[list[DueOperation]]:
    """Of a line, as many operations as one transaction takes."""
    part: list[DueOperation] = []
    for one in line:
        if part and sum(len(each.items) for each in (*part, one)) > TOGETHER_MAX:
            yield part
            part = []
        part.append(one)
    yield part


async def _carry_out_line(runtime: Runtime, line: Sequence[DueOperation]) -> psycopg.Error | None:
    for part in parts(line):
        if not await _carried_out_together(runtime, part):
            for one in part:
                if error := await _carry_out(runtime, one):
                    return error
    return None


async def _carried_out_together(runtime: Runtime, part: Sequence[DueOperation]) -> bool:
    """False if they have to be carried out one by one: one alone, or one of them at fault."""
    if len(part) == 1:
        return False
    commands = [ExecuteOperation(operation_id=one.operation_id, items=one.items) for one in part]
    began_at = asyncio.get_running_loop().time()
    try:
        origin = runtime.origin(ACTOR, part[0].operation_id, f"{DEED} {len(part)}")
        receipt = await runtime.committer.submit(AllOrNothing(commands), origin)
    except Exception:
        return False
    seconds = asyncio.get_running_loop().time() - began_at
    for operation in receipt.result:
        _say(logging.INFO, "operation.completed", operation, ms=round(seconds * 1000, 1))
    return True


async def _carry_out(runtime: Runtime, due: DueOperation) -> psycopg.Error | None:
    """Returns what is wrong with the database, if something is."""
    command = ExecuteOperation(operation_id=due.operation_id, items=due.items)
    began_at = asyncio.get_running_loop().time()
    try:
        origin = runtime.origin(ACTOR, due.operation_id, DEED)
        receipt = await runtime.committer.submit(command, origin)
    except _NOT_NOW:
        return None
    except Exception as error:
        if isinstance(error, psycopg.Error) and not _is_own_fault(error):
            return error
        await _fail(runtime, due, error)
        return None
    seconds = asyncio.get_running_loop().time() - began_at
    _say(logging.INFO, "operation.completed", receipt.result, ms=round(seconds * 1000, 1))
    return None


def _is_own_fault(error: psycopg.Error) -> bool:
    return (error.sqlstate or "").startswith(_OWN_FAULTS)


async def _rest(troubles: Sequence[psycopg.Error]) -> None:
    """However much the bell rings: it is told once a second, not for each."""
    context = {"count": len(troubles)}
    _log.error("operations.held_up", extra={"context": context}, exc_info=troubles[0])
    await asyncio.sleep(POLL_SECONDS)


async def _fail(runtime: Runtime, due: DueOperation, error: Exception) -> None:
    jitter = random.random()  # noqa: S311 (spreads retries)
    command = FailOperation(
        operation_id=due.operation_id,
        queues={item.queue for item in due.items},
        error=_sentence(error),
        jitter=jitter,
    )
    origin = runtime.origin(ACTOR, due.operation_id, f"fail {jitter}")
    (receipt,) = await runtime.send_all([(command, origin)])
    if isinstance(receipt, Receipt):
        _tell_failure(receipt.result, error)


def _sentence(error: Exception) -> str:
    """Of a database's errors only the first line: the others may show what is in a row."""
    text = str(error).partition("\n")[0] or type(error).__name__
    return text[:ERROR_CHARACTERS_MAX]


def _tell_failure(operation: Operation, error: Exception) -> None:
    is_given_up = operation.status is OperationStatus.FAILED
    event = "operation.given_up" if is_given_up else "operation.failed"
    level = logging.ERROR if is_given_up else logging.WARNING
    _say(level, event, operation, cause=error, attempt=operation.failures)


def _say(
    level: int,
    event: str,
    operation: Operation,
    *,
    cause: Exception | None = None,
    **more: object,
) -> None:
    if _log.isEnabledFor(level):
        context = {"type": operation.kind, "operationId": str(operation.id), **more}
        _log.log(level, event, extra={"context": context}, exc_info=cause)
