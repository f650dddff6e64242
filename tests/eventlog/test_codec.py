"""Every event that was ever stored can be read."""

import json
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from msgspec import Struct, ValidationError

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import Decider, Event, events_of
from daybook.domain.orders.claim import CompletedVia
from daybook.domain.orders.order import Order
from daybook.eventlog.codec import DomainEvent, EventMapper
from daybook.eventlog.errors import UnknownTopicError
from tests.support.committer import MAPPER
from tests.support.running.processes import ROOT

EXAMPLES = json.loads(ROOT.joinpath("tests/domain/stored_events.json").read_text())
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["topic"]))
def test_every_event_ever_stored_still_loads(example: dict[str, Any]) -> None:
    event = MAPPER.decode(example["topic"], json.dumps(example["state"]).encode())
    assert isinstance(event, Event)


def test_every_event_has_a_stored_example() -> None:
    stored = {example["topic"] for example in EXAMPLES}
    assert stored == MAPPER.known_topics


def test_an_event_survives_the_way_through_the_library_s_stored_event() -> None:
    event = Order.Completed(at=NOON, claim_id=uuid4(), via=CompletedVia.TIMER)
    domain_event = DomainEvent(uuid4(), 3, event)
    stored = MAPPER.to_stored_event(domain_event)
    assert isinstance(stored, StoredEvent)
    assert MAPPER.to_domain_event(stored) == domain_event


def test_an_unknown_topic_is_named_in_the_error() -> None:
    with pytest.raises(UnknownTopicError, match=r"order\.eaten"):
        MAPPER.decode("order.eaten", b"{}")
    with pytest.raises(UnknownTopicError, match=r"order\.eaten"):
        MAPPER.decider_of("order.eaten")


def test_topics_tell_the_kinds_of_their_aggregates() -> None:
    assert MAPPER.aggregates_of(["order.created", "order.claimed"]) == {"order"}
    assert MAPPER.aggregates_of(MAPPER.known_topics) == {decider.name for decider in DECIDERS}


def test_an_event_with_a_field_missing_does_not_load() -> None:
    with pytest.raises(ValidationError):
        MAPPER.decode("order.completed", b'{"at": "2026-01-01T12:00:00Z"}')


def _split_name(fields: dict[str, Any]) -> dict[str, Any]:
    first, _, last = fields.pop("name").partition(" ")
    return {**fields, "first": first, "last": last}


def _count_last(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "letters": len(fields["last"])}


class Guest(Struct, frozen=True):
    class Seated(Event, frozen=True, kw_only=True):
        topic: ClassVar[str] = "guest.seated"
        schema_version: ClassVar[int] = 3
        upcasts: ClassVar[Any] = {1: _split_name, 2: _count_last}
        first: str
        last: str
        letters: int


GUESTS: EventMapper = EventMapper(
    [
        Decider[Any](
            name="guest",
            state=Guest,
            events=events_of(Guest),
            evolve=lambda _state, _event: Guest(),
            finished=lambda _state: False,
        )
    ]
)


def test_an_event_of_an_older_version_is_upcast_step_by_step() -> None:
    newest = Guest.Seated(at=NOON, first="Ada", last="Lovelace", letters=8)
    topic, state = GUESTS.encode(newest)
    assert topic == "guest.seated/3"
    assert GUESTS.decode(topic, state) == newest

    second = b'{"at": "2026-01-01T12:00:00Z", "first": "Ada", "last": "Lovelace"}'
    assert GUESTS.decode("guest.seated/2", second) == newest
    first = b'{"at": "2026-01-01T12:00:00Z", "name": "Ada Lovelace"}'
    assert GUESTS.decode("guest.seated", first) == newest


def test_a_follower_that_wants_an_event_wants_all_its_versions() -> None:
    topics = GUESTS.topics_of([Guest.Seated])
    assert sorted(topics) == ["guest.seated", "guest.seated/2", "guest.seated/3"]
