"""The options of a job: every way in has the same bounds and defaults, and stored forms stay."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from msgspec import Raw, Struct, ValidationError, convert, json
from msgspec.structs import fields, replace

from daybook.api.jobs.requests import NewJobBody
from daybook.api.messages.responses import Item
from daybook.api.schedules.endpoints import ScheduledJob
from daybook.domain.errors import BadValueError
from daybook.domain.jobs.create import DirectJobRequest, FollowUp, JobTemplate, copy_options
from daybook.domain.jobs.job import BoundedOptions, JobOptions, OnDead
from daybook.domain.messages.operation import Message
from daybook.domain.upstreams.commands import RecordJob
from daybook.enqueue import _new_job

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMED = {"queue": "email", "type": "send"}
WAYS_IN: tuple[type[JobOptions], ...] = (
    NewJobBody,
    FollowUp,
    ScheduledJob,
    Item,
    DirectJobRequest,
    RecordJob,
)
TEMPLATE = (
    b'{"queue":"reports","type":"report","payload":{"a":1},"priority":5,"attempts_max":3,'
    b'"lease_seconds":90.0,"subject":null}'
)
MESSAGE = (
    b'{"job_id":"00000000-0000-0000-0000-000000000007","queue":"mail","partition":"p",'
    b'"unique_key":"p/t","payload":null,"priority":5,"attempts_max":3,"lease_seconds":90.0,'
    b'"run_at":null,"is_fresh":false,"on_dead":"return"}'
)
BAD_VALUES: list[tuple[str, Any]] = [
    ("queue", "a b"),
    ("queue", ""),
    ("queue", "x" * 101),
    ("type", "send\n"),
    ("type", 7),
    ("priority", 0),
    ("priority", 11),
    ("priority", 2.5),
    ("priority", True),
    ("attempts_max", 0),
    ("attempts_max", 1001),
    ("lease_seconds", 0),
    ("lease_seconds", 1e18),
    ("lease_seconds", float("nan")),
    ("run_at", datetime(9999, 1, 1, tzinfo=UTC)),
    ("run_at", datetime(2026, 1, 1)),  # noqa: DTZ001 (the very fault)
    ("run_at", "tomorrow"),
    ("subject", ""),
    ("subject", "x" * 201),
    ("partition", ""),
    ("partition", "x" * 201),
    ("unique_key", "x" * 201),
    ("unique_scope", "sometimes"),
    ("on_dead", "bury"),
    ("tags", [f"t{n}" for n in range(21)]),
    ("tags", ["a", "b", "a"]),
    ("tags", ["a,b"]),
    ("tags", [""]),
    ("tags", ["é"]),
    ("tags", ["x" * 101]),
    ("tags", [7]),
    ("tags", "vip"),
]


def sent(kind: type[Struct], **values: Any) -> dict[str, Any]:
    """The values as members of JSON, with the names that the way in requires."""
    names = {one.name: one.encode_name for one in fields(kind)}
    required = {name: value for name, value in NAMED.items() if name in names}
    return {names[name]: value for name, value in {**required, **values}.items()}


def refusal(kind: type[Struct], name: str, value: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        convert(sent(kind, **{name: value}), kind)
    return str(refused.value).partition(" - at ")[0]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES, ids=str)
def test_every_way_in_refuses_a_bad_value_with_the_same_sentence(name: str, value: Any) -> None:
    kinds = [kind for kind in WAYS_IN if name in kind.__struct_fields__]
    assert NewJobBody in kinds
    sentences = {refusal(kind, name, value) for kind in kinds}
    with pytest.raises(BadValueError) as refused:
        _new_job({**NAMED, name: value}, None)
    told = str(refused.value).partition(" - at ")[0]
    assert {one.removesuffix(".") for one in sentences} == {told.removesuffix(".")}


@pytest.mark.parametrize("kind", WAYS_IN)
def test_every_way_in_has_the_defaults_of_the_options(kind: type[JobOptions]) -> None:
    usual = convert(sent(kind), kind)
    names = [name for name in vars(JobOptions) if not name.startswith("_")]
    for name in {*names} - {*JobOptions.__struct_fields__}:
        assert getattr(usual, name) == getattr(JobOptions, name), name


@pytest.mark.parametrize("kind", [JobTemplate, Message])
def test_stored_options_are_those_of_every_way_in(kind: type[JobOptions]) -> None:
    assert {*BoundedOptions.__struct_fields__} <= {*kind.__struct_fields__}


@pytest.mark.parametrize(
    ("kind", "stored"), [(JobTemplate, TEMPLATE), (Message, MESSAGE)], ids=["template", "message"]
)
def test_stored_options_keep_their_bytes(kind: type[JobOptions], stored: bytes) -> None:
    # A rebuild compares the rows with those that older versions wrote.
    assert json.encode(json.decode(stored, type=kind)) == stored


@pytest.mark.parametrize("kind", WAYS_IN)
def test_every_way_in_takes_twenty_tags_in_their_order(kind: type[JobOptions]) -> None:
    tags = [f"t{n:02}" for n in reversed(range(20))]
    assert convert(sent(kind, tags=tags), kind).tags == (*tags,)


@pytest.mark.parametrize(
    ("kind", "stored"), [(JobTemplate, TEMPLATE), (Message, MESSAGE)], ids=["template", "message"]
)
def test_stored_options_hold_their_tags(kind: type[JobOptions], stored: bytes) -> None:
    tagged = replace(json.decode(stored, type=kind), tags=("vip", "eu"))
    assert json.decode(json.encode(tagged), type=kind) == tagged


def test_a_message_of_an_older_version_has_no_policy_for_dead_jobs() -> None:
    older = MESSAGE.replace(b',"on_dead":"return"', b"")
    assert json.decode(older, type=Message).on_dead is OnDead.RETURN


def test_stored_options_have_no_bounds_so_that_older_events_load() -> None:
    older = TEMPLATE.replace(b"90.0", b"1e18").replace(b'"priority":5', b'"priority":50')
    assert json.decode(older, type=JobTemplate).priority == 50


def test_a_copy_has_the_options_and_its_own_fields() -> None:
    item = Item(queue="mail", payload=Raw(b"[1]"), priority=2, run_at=NOON, on_dead=OnDead.RESTART)
    message = copy_options(
        Message, item, job_id=UUID(int=7), partition="p", unique_key="p/t", is_fresh=True
    )
    assert (message.payload, message.priority, message.run_at) == (Raw(b"[1]"), 2, NOON)
    assert (message.on_dead, message.partition) == (OnDead.RESTART, "p")
    assert item.partition is None
