"""Conversion between typed events and stored events.

The stored topic is the event's topic, with the suffix `/n` from schema version 2 on. Events of
older versions are upcast when they are read.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from eventsourcing.persistence import Mapper, StoredEvent
from msgspec import Struct, convert
from msgspec.json import Decoder, Encoder

from daybook.domain.event import Decider, Event
from daybook.eventlog.append_gate import EncodedEvent, checked_encoder
from daybook.eventlog.errors import UnknownTopicError

Decode = Callable[[bytes], Event]
E = TypeVar("E", bound=Event)

_encoder = Encoder()
_fields = Decoder(dict[str, Any])


class DomainEvent(Struct, frozen=True, gc=False):
    """An event with its aggregate and version, as the library's mapper expects it."""

    originator_id: UUID
    originator_version: int
    event: Event


class RecordedEvent(Struct, frozen=True, kw_only=True, gc=False):
    """An event with all metadata that the log stores for it."""

    position: int
    originator_id: UUID
    originator_version: int
    topic: str
    event: Event
    recorded_at: datetime
    actor: str
    command_id: UUID
    correlation_id: UUID
    causation_id: int | None


class UnreadableEvent(Event, frozen=True, kw_only=True, gc=False):
    """Placeholder in a history for an event that cannot be decoded. It is never stored."""

    topic: ClassVar[str] = "unreadable"
    error: str
    state: bytes


class FollowedEvent(Struct, frozen=True, gc=False):
    """An event as followers read it, without provenance. It is decoded on access: most read models
    need only the topic of most events."""

    position: int
    originator_id: UUID
    originator_version: int
    topic: str
    state: bytes
    decode: Decode

    @property
    def event(self) -> Event:
        return self.decode(self.state)


def stored_topic(kind: type[Event]) -> str:
    version = kind.schema_version
    return kind.topic if version == 1 else f"{kind.topic}/{version}"


class EventMapper(Mapper[UUID]):
    """Encodes and decodes the events of the given aggregates, in every stored version."""

    def __init__(self, deciders: Iterable[Decider[Any]]) -> None:
        self._topics: dict[type[Event], str] = {}
        self._decoders: dict[str, Decode] = {}
        self._encoders: dict[type[Event], Callable[[Any], EncodedEvent]] = {}
        self._deciders: dict[str, Decider[Any]] = {}
        for decider in deciders:
            for kind in decider.events:
                self._register(kind)
                self._deciders[kind.topic] = decider

    @property
    def known_topics(self) -> set[str]:
        return set(self._decoders)

    def topics_of(self, kinds: Iterable[type[Event]]) -> list[str]:
        """Returns the stored topics of the given events, in all versions."""
        wanted = {kind.topic for kind in kinds}
        return [topic for topic in self._decoders if topic.partition("/")[0] in wanted]

    def decider_of(self, topic: str) -> Decider[Any]:
        try:
            return self._deciders[topic.partition("/")[0]]
        except KeyError:
            raise UnknownTopicError(topic) from None

    def aggregates_of(self, topics: Iterable[str]) -> frozenset[str]:
        """Returns the names of the deciders that these topics belong to."""
        return frozenset([self.decider_of(topic).name for topic in topics])

    def encode(self, event: Event) -> tuple[str, bytes]:
        return self._topics[type(event)], _encoder.encode(event)

    def encode_checked(self, event: Event) -> EncodedEvent:
        """Encodes an event; raises UnreadableEventError if it could not be read back."""
        return self._encoders[type(event)](event)

    def decode(self, topic: str, state: bytes) -> Event:
        return self._decoder(topic)(state)

    def recorded_event(self, row: Sequence[Any]) -> RecordedEvent:
        """Builds an event from a row with columns in the order of RecordedEvent's fields."""
        return RecordedEvent(
            position=row[0],
            originator_id=row[1],
            originator_version=row[2],
            topic=row[3],
            event=self.decode_for_history(row[3], row[4], row[5]),
            recorded_at=row[5],
            actor=row[6],
            command_id=row[7],
            correlation_id=row[8],
            causation_id=row[9],
        )

    def decode_for_history(self, topic: str, state: bytes, recorded_at: datetime) -> Event:
        """Decodes an event, or returns an UnreadableEvent so that the history stays complete."""
        try:
            return self.decode(topic, state)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return UnreadableEvent(at=recorded_at, error=reason, state=state)

    def followed_events(self, rows: Iterable[Sequence[Any]]) -> list[FollowedEvent]:
        """Builds events from rows with columns in the order of FollowedEvent's first fields."""
        return [
            FollowedEvent(position, aggregate_id, version, topic, state, self._lazy_decoder(topic))
            for position, aggregate_id, version, topic, state in rows
        ]

    def _lazy_decoder(self, topic: str) -> Decode:
        """An unknown topic raises only when its event is decoded."""
        return self._decoders.get(topic) or partial(self.decode, topic)

    def _decoder(self, topic: str) -> Decode:
        try:
            return self._decoders[topic]
        except KeyError:
            raise UnknownTopicError(topic) from None

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        topic, state = self.encode(domain_event.event)
        return StoredEvent(
            domain_event.originator_id, domain_event.originator_version, topic, state
        )

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEvent:
        # The library's protocol expects an event's fields beside its originator. This class keeps
        # the event separate, so that deciders do not depend on storage.
        event = self.decode(stored_event.topic, stored_event.state)
        assert isinstance(stored_event.originator_id, UUID)
        return DomainEvent(stored_event.originator_id, stored_event.originator_version, event)

    def _register(self, kind: type[Event]) -> None:
        topic = stored_topic(kind)
        assert topic not in self._decoders, f"two events have the topic {topic}"
        self._topics[kind] = topic
        self._decoders[topic] = Decoder(kind).decode
        self._encoders[kind] = checked_encoder(topic, kind, Decoder(kind).decode)
        for version in range(1, kind.schema_version):
            older = kind.topic if version == 1 else f"{kind.topic}/{version}"
            self._decoders[older] = _upcasting(kind, version)


def _upcasting(kind: type[E], version: int) -> Decode:
    steps = [kind.upcasts[n] for n in range(version, kind.schema_version)]

    def decode(state: bytes) -> E:
        fields = _fields.decode(state)
        for step in steps:
            fields = step(fields)
        return convert(fields, kind)

    return decode
