"""Executes accepted operations, per lane in the order of acceptance.

Each operation runs in one transaction, so a crash leaves it untouched for another process. The
committer runs them at low priority: they never delay other commands.
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
ACTION = "carry out"
AT_ONCE_MAX = 200
# Messages per transaction.
TOGETHER_MAX = 1000
# An executed operation may unblock others of its lane, so the next run follows without a wakeup.
LOOK_SECONDS = 0.1
ERROR_CHARACTERS_MAX = 2000

# Another process was first, or the database was unavailable: the next run reads the remaining
# work. The operation is not at fault, so this is no failed attempt.
_NOT_NOW = (
    OperationOverError,
    NotFoundError,
    UnavailableError,
    OutcomeUnknownError,
    ConflictError,
    NotLoadedError,
)
# SQLSTATE classes that the operation itself causes: its data, constraints, and limits of a row. Any
# other error, such as a missing privilege, hits every operation, so none may be given up for it.
_OWN_FAULTS = ("21", "22", "23", "54", "P0")


class OperationExecutor(Processor):
    name: ClassVar[str] = "operations"
    wakes_on: ClassVar[WakesOn] = (OPERATION,)
    pause_seconds: ClassVar[float] = 0.01
    # Most wakeups bring no accepted operation.
    min_interval_seconds: ClassVar[float] = 0.03

    def __init__(self) -> None:
        self._has_begun = False

    async def work(self, runtime: Runtime, session: Session) -> float:
        self._begin(session)
        connection, seconds = session.connection, session.standby_delay_seconds
        due = await find_due(connection, standby_delay_seconds=seconds, limit=AT_ONCE_MAX)
        if not due:
            return POLL_SECONDS
        outcomes = await asyncio.gather(*(_execute_chain(runtime, chain) for chain in chains(due)))
        if errors := [one for one in outcomes if one is not None]:
            await _back_off(errors)
        return 0 if len(due) == AT_ONCE_MAX else LOOK_SECONDS

    def _begin(self, session: Session) -> None:
        if session.is_leader and not self._has_begun:
            context = {"lookMs": round(LOOK_SECONDS * 1000), "atOnceMax": AT_ONCE_MAX}
            _log.info("operations.begun", extra={"context": context})
        self._has_begun = session.is_leader


def chains(due: Sequence[DueOperation]) -> list[list[DueOperation]]:
    """Groups operations that share a lane into chains, each in the order of acceptance. A chain
    runs sequentially, because events of concurrent writers enter the log in any order."""
    chain_of: dict[tuple[str, str], list[DueOperation]] = {}
    for one in due:
        lanes = {(item.queue, item.partition) for item in one.items}
        joined = {id(chain): chain for lane in lanes if (chain := chain_of.get(lane)) is not None}
        chain, *others = joined.values() if joined else ([],)
        for other in others:
            chain += other
            for item in (item for operation in other for item in operation.items):
                chain_of[item.queue, item.partition] = chain
        chain.append(one)
        chain_of |= dict.fromkeys(lanes, chain)
    order = {one.operation_id: index for index, one in enumerate(due)}
    found = {id(chain): chain for chain in chain_of.values()}
    return [sorted(chain, key=lambda one: order[one.operation_id]) for chain in found.values()]


def parts(chain: Sequence[DueOperation]) -> Iterator[list[DueOperation]]:
    """Splits a chain by the number of messages that one transaction takes."""
    part: list[DueOperation] = []
    for one in chain:
        if part and sum(len(each.items) for each in (*part, one)) > TOGETHER_MAX:
            yield part
            part = []
        part.append(one)
    yield part


async def _execute_chain(runtime: Runtime, chain: Sequence[DueOperation]) -> psycopg.Error | None:
    for part in parts(chain):
        if not await _execute_together(runtime, part):
            for one in part:
                if error := await _execute(runtime, one):
                    return error
    return None


async def _execute_together(runtime: Runtime, part: Sequence[DueOperation]) -> bool:
    """Returns False if the operations must run one by one: a single one, or one that fails."""
    if len(part) == 1:
        return False
    commands = [ExecuteOperation(operation_id=one.operation_id, items=one.items) for one in part]
    began_at = asyncio.get_running_loop().time()
    try:
        origin = runtime.origin(ACTOR, part[0].operation_id, f"{ACTION} {len(part)}")
        receipt = await runtime.committer.submit(AllOrNothing(commands), origin)
    except Exception:
        return False
    seconds = asyncio.get_running_loop().time() - began_at
    for operation in receipt.result:
        _log_operation(logging.INFO, "operation.completed", operation, ms=round(seconds * 1000, 1))
    return True


async def _execute(runtime: Runtime, due: DueOperation) -> psycopg.Error | None:
    """Returns an error of the database that the operation did not cause."""
    command = ExecuteOperation(operation_id=due.operation_id, items=due.items)
    began_at = asyncio.get_running_loop().time()
    try:
        origin = runtime.origin(ACTOR, due.operation_id, ACTION)
        receipt = await runtime.committer.submit(command, origin)
    except _NOT_NOW:
        return None
    except Exception as error:
        if isinstance(error, psycopg.Error) and not _is_own_fault(error):
            return error
        await _fail(runtime, due, error)
        return None
    seconds = asyncio.get_running_loop().time() - began_at
    _log_operation(logging.INFO, "operation.completed", receipt.result, ms=round(seconds * 1000, 1))
    return None


def _is_own_fault(error: psycopg.Error) -> bool:
    return (error.sqlstate or "").startswith(_OWN_FAULTS)


async def _back_off(errors: Sequence[psycopg.Error]) -> None:
    """Logs once and waits 1 s, however many wakeups arrive."""
    context = {"count": len(errors)}
    _log.error("operations.held_up", extra={"context": context}, exc_info=errors[0])
    await asyncio.sleep(POLL_SECONDS)


async def _fail(runtime: Runtime, due: DueOperation, error: Exception) -> None:
    jitter = random.random()  # noqa: S311 (spreads retries)
    command = FailOperation(
        operation_id=due.operation_id,
        queues={item.queue for item in due.items},
        error=_first_line(error),
        jitter=jitter,
    )
    origin = runtime.origin(ACTOR, due.operation_id, f"fail {jitter}")
    (receipt,) = await runtime.send_all([(command, origin)])
    if isinstance(receipt, Receipt):
        _log_failure(receipt.result, error)


def _first_line(error: Exception) -> str:
    """Further lines of a database error may show the contents of a row."""
    text = str(error).partition("\n")[0] or type(error).__name__
    return text[:ERROR_CHARACTERS_MAX]


def _log_failure(operation: Operation, error: Exception) -> None:
    is_given_up = operation.status is OperationStatus.FAILED
    event = "operation.given_up" if is_given_up else "operation.failed"
    level = logging.ERROR if is_given_up else logging.WARNING
    _log_operation(level, event, operation, cause=error, attempt=operation.failures)


def _log_operation(
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
