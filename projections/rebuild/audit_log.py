"""Events of a rebuild: the operator, the reason and the findings.

They are written before and after, never in the transaction that compares or switches, so both sides
are compared at one position.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from msgspec import Struct
from uuid_utils.compat import uuid7

from daybook.domain.command import Command
from daybook.domain.deciders import DECIDERS
from daybook.domain.rebuild import BeginRebuild, EndRebuild, RebuildAction, TableFinding
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.origin import Origin
from daybook.eventlog.writing.committer import Committer
from daybook.projections.rebuild.comparison import Comparison
from daybook.projections.rebuild.targets import Target
from daybook.projections.registry import LIVE_TABLES

ERROR_CHARACTERS_MAX = 2000
STOPPED = "It was stopped; the same command resumes it."


class Operator(Struct, frozen=True):
    actor: str = "operator"
    because: str | None = None


OPERATOR = Operator()


class RebuildEvents:
    def __init__(self, conninfo: str, operator: Operator) -> None:
        self._conninfo = conninfo
        self._operator = operator
        self.found: Sequence[TableFinding] = ()

    @asynccontextmanager
    async def entry(self, action: RebuildAction, targets: Sequence[Target]) -> AsyncIterator[None]:
        """Records the end after every outcome; if the process dies, the next rebuild records it."""
        rebuild_id = uuid7()
        names = tuple(target.name for target in targets)
        begin = BeginRebuild(
            rebuild_id=rebuild_id, action=action, projections=names, because=self._operator.because
        )
        await self._write(begin, rebuild_id)
        try:
            yield
        except BaseException as error:
            failed = EndRebuild(rebuild_id=rebuild_id, error=_error_text(error))
            await self._write(failed, rebuild_id)
            raise
        await self._write(EndRebuild(rebuild_id=rebuild_id, found=self.found), rebuild_id)

    async def _write(self, command: Command[Any], rebuild_id: UUID) -> None:
        origin = Origin(command_id=uuid7(), actor=self._operator.actor, correlation=rebuild_id)
        mapper = EventMapper(DECIDERS)
        async with Committer(self._conninfo, tables=LIVE_TABLES, mapper=mapper) as committer:
            await committer.submit(command, origin)


def table_finding(comparison: Comparison) -> TableFinding:
    return TableFinding(
        projection=comparison.name,
        position=comparison.position,
        rows_count=comparison.rows_count,
        digest=comparison.digest,
        differences_count=comparison.differences_count,
    )


def _error_text(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return STOPPED
    return (str(error) or type(error).__name__)[:ERROR_CHARACTERS_MAX]
