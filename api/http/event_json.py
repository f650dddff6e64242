"""Renders events as JSON: members in camelCase, timestamps in UTC with milliseconds."""

from datetime import datetime
from functools import lru_cache
from typing import Any, NotRequired, TypedDict
from uuid import UUID

import orjson
from msgspec import Raw, Struct

from daybook.api.http.timestamps import Moment, moment
from daybook.eventlog.codec import RecordedEvent, UnreadableEvent


class EventJSON(TypedDict):
    """`data` is the event in its rendered form: its members in camelCase, as this version reads
    them. Lines of NDJSON have the stored form."""

    position: int
    topic: str
    version: int
    recordedAt: Moment
    actor: str
    commandId: UUID
    correlationId: UUID
    causationId: int | None
    data: dict[str, Any]
    unreadable: NotRequired[str]
    """Why this version cannot read the event; `data` is empty then."""


def event_json(recorded: RecordedEvent) -> EventJSON:
    rendered = _event_json(recorded)
    if isinstance(recorded.event, UnreadableEvent):
        # Only the columns of the log are known of it.
        return {**rendered, "topic": recorded.topic, "data": {}, "unreadable": recorded.event.error}
    return rendered


def _event_json(recorded: RecordedEvent) -> EventJSON:
    return {
        "position": recorded.position,
        "topic": recorded.event.topic,
        "version": recorded.originator_version,
        "recordedAt": moment(recorded.recorded_at),
        "actor": recorded.actor,
        "commandId": recorded.command_id,
        "correlationId": recorded.correlation_id,
        "causationId": recorded.causation_id,
        "data": members_json(recorded.event),
    }


def members_json(struct: Struct) -> dict[str, Any]:
    return {_camel(name): _value(getattr(struct, name)) for name in struct.__struct_fields__}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, Raw):
        return orjson.Fragment(bytes(value))
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return members_json(value) if isinstance(value, Struct) else value


@lru_cache(maxsize=256)
def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
