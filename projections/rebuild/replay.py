"""Replays the log into copies of derived tables, chunk by chunk.

A chunk and its cursor are one transaction, so a killed replay resumes there. Memory holds only the
aggregates of one chunk.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace
from psycopg.sql import SQL, Composed, Identifier

from daybook.eventlog.codec import FollowedEvent
from daybook.eventlog.postgres.connections import SCHEMA
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.follower import (
    READ_CURSOR,
    READ_EVENTS,
    READ_EVENTS_OF_TOPICS,
    FollowerCursor,
)
from daybook.projections.quarantine.quarantines import set_aside_ids
from daybook.projections.rebuild.shadow_tables import Copy, store_cursor
from daybook.projections.rebuild.targets import MAPPER, TARGETS, Events, Target

CHUNK = 20_000
ALL_TOPICS = frozenset[str]().union(*(target.topics for target in TARGETS))
END_OF_LOG = 2**63 - 1
# The copies first, then the log and the other running tables.
SET_SEARCH_PATH = SQL("SET LOCAL search_path = {copies}, {running}")
# Without the copy, the search path would lead to the running table. The lock by full name fails
# then, and otherwise keeps the copy from being dropped.
LOCK_TABLES = SQL("LOCK TABLE {tables} IN ROW EXCLUSIVE MODE")

Goals = Mapping[str, int]  # position to which each copy is replayed, by name


def goals_at(
    copies: Sequence[Copy], position: int, followed: Mapping[str, FollowerCursor]
) -> Goals:
    """A followed copy goes no further than the running cursor, where both are compared."""
    names = [copy.target.name for copy in copies]
    ends = {name: cursor.position for name, cursor in followed.items()}
    return {name: min(position, ends.get(name, position)) for name in names}


async def running_cursors(
    connection: Connection, targets: Sequence[Target]
) -> dict[str, FollowerCursor]:
    cursors: dict[str, FollowerCursor] = {}
    for target in targets:
        if target.is_followed:
            rows = await connection.execute(READ_CURSOR, {"name": target.name}, binary=True)
            cursors[target.name] = FollowerCursor(*(await rows.fetchone() or ()))
    return cursors


async def replay_all(connection: Connection, copies: Sequence[Copy], goals: Goals) -> list[Copy]:
    """Replays in the caller's transaction and its snapshot of the log."""
    while any(is_behind(copy, goals) for copy in copies):
        copies = await replay_chunk(connection, copies, goals)
    await recompute_all(connection, copies)
    return [*copies]


async def recompute_all(connection: Connection, copies: Sequence[Copy]) -> None:
    async with connection.transaction():
        await _enter(connection, copies)
        for copy in copies:
            await copy.target.recompute_all(connection)


async def replay_chunk(connection: Connection, copies: Sequence[Copy], goals: Goals) -> list[Copy]:
    """Replays the next events into the copies furthest behind; returns all copies."""
    behind = [copy for copy in copies if is_behind(copy, goals)]
    after = min(copy.position for copy in behind)
    horizon = max(goals[copy.target.name] for copy in behind)
    async with connection.transaction():
        await _enter(connection, behind)
        events = await _read(connection, behind, after=after, upto=horizon)
        set_aside = await set_aside_ids(connection)
        reached = horizon if len(events) < CHUNK else events[-1].position
        moved = {
            copy.target.name: await _take(
                connection, copy, events, set_aside, upto=min(reached, goals[copy.target.name])
            )
            for copy in behind
        }
    first = behind[0].target.name
    moved[first] = replace(moved[first], left_out=(*moved[first].left_out, *_unknown(events)))
    return [moved.get(copy.target.name, copy) for copy in copies]


def _unknown(events: Events) -> list[str]:
    """Reports unknown topics, which only a replay of all topics reads."""
    known = MAPPER.known_topics
    return [
        f"{one.originator_id}: position {one.position} has the unknown topic {one.topic}"
        for one in events
        if one.topic not in known
    ]


def is_behind(copy: Copy, goals: Goals) -> bool:
    return copy.position < goals[copy.target.name]


async def _enter(connection: Connection, copies: Sequence[Copy]) -> None:
    (schema,) = {copy.schema for copy in copies}
    path = SET_SEARCH_PATH.format(copies=Identifier(schema), running=Identifier(SCHEMA))
    await connection.execute(path)
    await connection.execute(LOCK_TABLES.format(tables=_listed(copies)))


def _listed(copies: Sequence[Copy]) -> Composed:
    return SQL(", ").join([table for copy in copies for table in copy.tables])


async def _read(
    connection: Connection, copies: Sequence[Copy], *, after: int, upto: int
) -> list[FollowedEvent]:
    wanted = {"after": after, "horizon": upto, "limit": CHUNK}
    topics = frozenset[str]().union(*(copy.target.topics for copy in copies))
    if topics == ALL_TOPICS:
        # Unfiltered, so that unknown topics are reported.
        rows = await connection.execute(READ_EVENTS, wanted, binary=True)
    else:
        of_topics = {**wanted, "topics": [*topics]}
        rows = await connection.execute(READ_EVENTS_OF_TOPICS, of_topics, binary=True)
    return MAPPER.followed_events(await rows.fetchall())


async def _take(
    connection: Connection, copy: Copy, events: Events, set_aside: Collection[UUID], *, upto: int
) -> Copy:
    """Applies the events of one target, except aggregates that are set aside; the cursor passes
    these too."""
    target, after = copy.target, copy.position
    if upto <= after:
        return copy
    own = [one for one in events if one.topic in target.topics and after < one.position <= upto]
    applied = [one for one in own if one.originator_id not in set_aside] if set_aside else own
    left_out = await target.apply(connection, applied, after=after) if applied else []
    moved = replace(
        copy,
        cursor=target.passed(copy.cursor, own, upto=upto),
        left_out=(*copy.left_out, *left_out),
    )
    await store_cursor(connection, moved)
    return moved
