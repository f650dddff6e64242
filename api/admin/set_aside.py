"""Sets an aggregate aside directly on the database; works with and without a running service."""

from uuid import UUID

from uuid_utils.compat import uuid7

from daybook.domain.deciders import DECIDERS
from daybook.domain.quarantine import Quarantine, SetAside
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.eventlog.writing.committer import Committer
from daybook.projections.quarantine.first_fault import fault_to_set_aside
from daybook.projections.registry import LIVE_TABLES


async def set_aside(conninfo: str, aggregate_id: UUID, *, reason: str, actor: str) -> Quarantine:
    """Raises a Refusal if the aggregate does not exist or is readable."""
    async with await connect(reader_conninfo(conninfo)) as connection:
        fault = await fault_to_set_aside(connection, aggregate_id)
    mapper = EventMapper(DECIDERS)
    async with Committer(conninfo, tables=LIVE_TABLES, mapper=mapper, writers=1) as committer:
        command = SetAside(fault=fault, reason=reason)
        receipt = await committer.submit(command, Origin(command_id=uuid7(), actor=actor))
    quarantine: Quarantine = receipt.result
    return quarantine
