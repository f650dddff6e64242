"""A record of an upstream feed: seen, changed, deleted, possibly seen again.

Feeds repeat records and deliver them out of order, so the revision decides: numbers and timestamps
only grow; of other revisions only equality is known.
"""

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID, uuid5

from msgspec import Raw, Struct

from daybook.domain.event import Decider, Event, State, events_of
from daybook.domain.jobs.job import NULL
from daybook.domain.upstreams.upstream import upstream_id

# Ordered revisions. A checksum may be all digits by chance, but not two of one record.
_ORDERED: dict[re.Pattern[str], Callable[[str], Any]] = {
    re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?"): Decimal,
    re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].{1,40})?"): datetime.fromisoformat,
}


class FeedRecord(Struct, frozen=True, kw_only=True, gc=False):
    record_id: str
    revision: str
    deleted: bool
    data: Raw


class UpstreamRecord(State, frozen=True, kw_only=True, gc=False):
    stream: str
    record_id: str
    revision: str
    data: Raw
    seen_at: datetime
    updated_at: datetime
    deleted: bool = False
    vanished: bool = False  # Deleted because a full poll no longer found it

    class Seen(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "upstream.seen"
        stream: str
        record_id: str
        revision: str
        data: Raw

    class Changed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "upstream.changed"
        revision: str
        data: Raw

    class Deleted(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "upstream.deleted"
        stream: str
        record_id: str
        revision: str
        vanished: bool


def record_uuid(stream: str, record_id: str) -> UUID:
    return uuid5(upstream_id(stream), record_id)


def is_news(found: FeedRecord, *, revision: str, deleted: bool, vanished: bool) -> bool:
    """Whether the found record adds to the known revision, alive or deleted."""
    order = _compare(found.revision, revision)
    if order > 0:
        return True
    # A deletion may keep the revision. A record that a full poll missed and that is back was never
    # deleted, or was restored.
    return (found.deleted and not deleted and order == 0) or (vanished and not found.deleted)


def take(
    record: UpstreamRecord | None, *, stream: str, found: FeedRecord, now: datetime
) -> Event | None:
    """The event that the found record causes; None if nothing changed."""
    if record is not None and not is_news(
        found, revision=record.revision, deleted=record.deleted, vanished=record.vanished
    ):
        return None
    if found.deleted:
        return UpstreamRecord.Deleted(
            at=now,
            stream=stream,
            record_id=found.record_id,
            revision=found.revision,
            vanished=False,
        )
    if record is None or record.deleted:
        return UpstreamRecord.Seen(
            at=now,
            stream=stream,
            record_id=found.record_id,
            revision=found.revision,
            data=found.data,
        )
    return UpstreamRecord.Changed(at=now, revision=found.revision, data=found.data)


def vanish(record: UpstreamRecord, *, now: datetime) -> Event | None:
    if record.deleted:
        return None
    return UpstreamRecord.Deleted(
        at=now,
        stream=record.stream,
        record_id=record.record_id,
        revision=record.revision,
        vanished=True,
    )


def _compare(one: str, other: str) -> int:
    """Negative if `one` is older. Without an order, a different revision counts as newer."""
    if one == other:
        return 0
    for pattern, parse in _ORDERED.items():
        if pattern.fullmatch(one) and pattern.fullmatch(other):
            try:
                left, right = parse(one), parse(other)
                return int(left > right) - int(left < right)
            except (ValueError, TypeError):
                continue
    return 1


def evolve(record: UpstreamRecord | None, event: Event) -> UpstreamRecord:
    match event:
        case UpstreamRecord.Seen():
            if record is None:
                return _new_record(event, data=event.data)
            return record.after(
                event, revision=event.revision, data=event.data, deleted=False, vanished=False
            )
        case UpstreamRecord.Deleted():
            if record is None:
                return _new_record(event, data=NULL, deleted=True)
            return record.after(
                event, revision=event.revision, deleted=True, vanished=event.vanished
            )
        case UpstreamRecord.Changed():
            assert record is not None, f"{event} is the first event of a record"
            return record.after(event, revision=event.revision, data=event.data)
    raise AssertionError(f"unknown record event {event}")


def _new_record(
    event: UpstreamRecord.Seen | UpstreamRecord.Deleted, *, data: Raw, deleted: bool = False
) -> UpstreamRecord:
    return UpstreamRecord(
        id=record_uuid(event.stream, event.record_id),
        version=1,
        stream=event.stream,
        record_id=event.record_id,
        revision=event.revision,
        data=data,
        seen_at=event.at,
        updated_at=event.at,
        deleted=deleted,
    )


UPSTREAM_RECORD: Decider[UpstreamRecord] = Decider(
    name="upstream record",
    state=UpstreamRecord,
    events=events_of(UpstreamRecord),
    evolve=evolve,
    finished=lambda _record: False,
)
