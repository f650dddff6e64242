"""What may be wrong, and what to do next: everything that can be seen from the database."""

import random
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import asdict, replace

from domain.job import Job
from eventlog.history import fold_histories
from eventlog.live import LiveTable
from eventlog.mapper import EventMapper
from projections.findings import NAMED_MAX, Connection, Finding, Health
from projections.house_examinations import OF_THE_HOUSE
from projections.registry import DECIDERS, LIVE_TABLES
from projections.snapshot import begin_snapshot
from projections.work_examinations import OF_THE_WORK

# So many rows of a live table are compared with the log: all of them as a rule.
COMPARED_MAX = 20_000
# A restaurant has an event for every guest; whoever asks a doctor does not wait for a million.
HISTORY_MAX = 50_000
CHUNK = 500

_MAPPER = EventMapper(DECIDERS)


async def examine(connection: Connection) -> AsyncIterator[Finding]:
    for examination in (*OF_THE_HOUSE, *OF_THE_WORK):
        yield await examination(connection)
    for table in LIVE_TABLES:
        yield await _compare(connection, table)


async def _compare(connection: Connection, table: LiveTable[Any]) -> Finding:
    """Each row against the fold of its own events, both as one snapshot shows them."""
    wrong: list[str] = []
    async with connection.transaction():
        await begin_snapshot(connection)
        found = await connection.execute(
            f"SELECT id, version <= %(most)s FROM {table.name}".encode(), {"most": HISTORY_MAX}
        )
        listed = await found.fetchall()
        ids = [row[0] for row in listed if row[1]]
        compared = ids if len(ids) <= COMPARED_MAX else random.sample(ids, COMPARED_MAX)
        for start in range(0, len(compared), CHUNK):
            wrong += await _differing(connection, table, compared[start : start + CHUNK])
    if wrong:
        step = f"Rebuild it from the log: daybook rebuild {table.name}."
        return Finding(f"table {table.name}", Health.BAD, f"{'; '.join(wrong[:NAMED_MAX])}.", step)
    part = "" if len(compared) == len(ids) else f" (a sample of {len(compared)})"
    long = len(listed) - len(ids)
    rest = f" {long} with long histories: daybook rebuild --all --verify-only." if long else ""
    sentence = f"{len(ids)} rows{part} are what the log says.{rest}"
    return Finding(f"table {table.name}", Health.GOOD, sentence)


async def _differing(
    connection: Connection, table: LiveTable[Any], ids: Sequence[UUID]
) -> list[str]:
    query = f"{table.select} WHERE id = ANY(%(ids)s)".encode()
    rows = await (await connection.execute(query, {"ids": list(ids)}, binary=True)).fetchall()
    folded = await fold_histories(connection, _MAPPER, ids)
    wrong: list[str] = []
    for row in rows:
        live = table.load(row)
        expected = _comparable(folded.get(live.id))
        if _comparable(live) != expected:
            wrong.append(f"{table.decider.name} {live.id} {_difference(live, expected)}")
    return wrong


def _comparable(state: Any) -> Any:
    """Heartbeats, which are no events, have moved the end of a lease."""
    if isinstance(state, Job) and state.lease is not None:
        return replace(state, lease=replace(state.lease, until=state.lease.started_at))
    return state


def _difference(live: Any, expected: Any) -> str:
    if expected is None:
        return "is not in the log"
    live = _comparable(live)
    names = [name for name, value in asdict(live).items() if value != asdict(expected)[name]]
    return f"differs in {', '.join(names)}"
