"""Doctor: runs all health checks that need only the database and yields their findings."""

import random
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import asdict, replace

from daybook.domain.deciders import DECIDERS
from daybook.domain.jobs.job import Job
from daybook.domain.quarantine import Quarantine, QuarantineStatus
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.unreadable_rows import find_unreadable_rows
from daybook.projections.doctor.backlog_checks import BACKLOG_CHECKS
from daybook.projections.doctor.database_checks import DATABASE_CHECKS, check_followers
from daybook.projections.doctor.finding import NAMED_MAX, Finding, Health
from daybook.projections.quarantine.quarantines import all_quarantines
from daybook.projections.registry import LIVE_TABLES
from daybook.projections.snapshot import begin_snapshot

# Rows of a live table compared with the log; a larger table is sampled.
COMPARED_MAX = 20_000
# Longest history that is folded: a restaurant may have a million events, one per guest.
HISTORY_MAX = 50_000
CHUNK = 500
UNREADABLE = "has an event that cannot be read"

_MAPPER = EventMapper(DECIDERS)


async def examine(
    connection: Connection, *, followers_off: Collection[str] = ()
) -> AsyncIterator[Finding]:
    for check in DATABASE_CHECKS:
        yield await check(connection)
    yield await check_followers(connection, off=followers_off)
    for check in BACKLOG_CHECKS:
        yield await check(connection)
    yield await _quarantine(connection)
    for table in LIVE_TABLES:
        yield await _compare(connection, table)


async def _quarantine(connection: Connection) -> Finding:
    """BAD until an operator has set every unreadable aggregate aside."""
    found = await all_quarantines(connection)
    detected = [one for one in found if one.status is QuarantineStatus.DETECTED]
    if detected:
        step = f"daybook quarantine set-aside {detected[0].fault.aggregate_id} --reason TEXT."
        sentence = f"Unreadable: {_named(detected)}. All other aggregates work."
        return Finding("quarantine", Health.BAD, sentence, step)
    if found:
        return Finding("quarantine", Health.GOOD, f"Set aside: {_named(found)}.")
    return Finding("quarantine", Health.GOOD, "No unreadable event was found.")


def _named(quarantines: Sequence[Quarantine]) -> str:
    named = [
        f"{one.fault.kind} {one.fault.aggregate_id} ({one.fault.topic} at position "
        f"{one.fault.position}: {one.reason or one.fault.error})"
        for one in quarantines[:NAMED_MAX]
    ]
    more = len(quarantines) - len(named)
    return "; ".join([*named, *([f"{more} more"] if more else [])])


async def _compare(connection: Connection, table: LiveTable[Any]) -> Finding:
    """Compares each row with the fold of its events, in one snapshot."""
    wrong: list[str] = []
    async with connection.transaction():
        await begin_snapshot(connection)
        unreadable = {*await find_unreadable_rows(connection, table.name)}
        wrong += [f"{table.decider.name} {one} cannot be loaded" for one in sorted(unreadable)]
        found = await connection.execute(
            f"SELECT id, version <= %(most)s FROM {table.name}".encode(), {"most": HISTORY_MAX}
        )
        listed = await found.fetchall()
        ids = [row[0] for row in listed if row[1] and row[0] not in unreadable]
        compared = ids if len(ids) <= COMPARED_MAX else random.sample(ids, COMPARED_MAX)
        for start in range(0, len(compared), CHUNK):
            wrong += await _differing(connection, table, compared[start : start + CHUNK])
    if wrong:
        step = f"Rebuild it from the log: daybook rebuild {table.name}."
        if any(UNREADABLE in one or "cannot be loaded" in one for one in wrong):
            step = "Set it aside: daybook quarantine set-aside ID --reason TEXT."
        return Finding(f"table {table.name}", Health.BAD, f"{'; '.join(wrong[:NAMED_MAX])}.", step)
    part = "" if len(compared) == len(ids) else f" (a sample of {len(compared)})"
    long = len(listed) - len(ids)
    rest = f" {long} with long histories: daybook rebuild --all --verify-only." if long else ""
    sentence = f"{len(ids)} rows{part} match the log.{rest}"
    return Finding(f"table {table.name}", Health.GOOD, sentence)


async def _differing(
    connection: Connection, table: LiveTable[Any], ids: Sequence[UUID]
) -> list[str]:
    query = f"{table.select} WHERE id = ANY(%(ids)s)".encode()
    rows = await (await connection.execute(query, {"ids": list(ids)}, binary=True)).fetchall()
    unreadable: dict[UUID, Exception] = {}
    folded = await fold_histories(
        connection, _MAPPER, ids, on_unreadable=lambda one, error: unreadable.update({one: error})
    )
    wrong: list[str] = []
    for row in rows:
        live = table.load(row)
        if live.id in unreadable:
            wrong.append(f"{table.decider.name} {live.id} {UNREADABLE}: {unreadable[live.id]}")
            continue
        expected = _comparable(folded.get(live.id))
        if _comparable(live) != expected:
            wrong.append(f"{table.decider.name} {live.id} {_difference(live, expected)}")
    return wrong


def _comparable(state: Any) -> Any:
    """Ignores the end of a lease: heartbeats move it without an event."""
    if isinstance(state, Job) and state.claim is not None:
        return replace(state, claim=replace(state.claim, until=state.claim.started_at))
    return state


def _difference(live: Any, expected: Any) -> str:
    if expected is None:
        return "is not in the log"
    live = _comparable(live)
    names = [name for name, value in asdict(live).items() if value != asdict(expected)[name]]
    return f"differs in {', '.join(names)}"
