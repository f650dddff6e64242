"""Random mutations of the valid history: impossible histories are rejected.

The rules define which mutations are meaningful, not the findings of the auditor. Mutations after
which a service could still have recorded the log are left out:

- the last event of an aggregate is missing, and no other event refers to it;
- a claim id changes that no later event names;
- an actor changes to another that may record the event;
- a field changes that no rule constrains (a text, a priority, the time of a single event).
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import json

from daybook.audit.client_records import ClientRecords
from daybook.audit.entries import Entry
from daybook.audit.invariant import Verdict
from daybook.audit.replayed_state import ReplayedState
from tests.audit.histories.in_memory import (
    COMPLETIONS,
    DISPATCH,
    LEASES,
    RECOVERY,
    Log,
    Story,
    data_of,
    judge,
)

Mutation = Callable[[Story, random.Random], bool]
"""Corrupts the story; returns whether the result is impossible."""

# Fields that rules constrain, and how each is corrupted.
CONSTRAINED: dict[tuple[str, str], Callable[[random.Random], object]] = {
    ("order.created", "order_id"): lambda _chance: uuid4(),
    ("order.created", "number"): lambda chance: chance.randint(1, 5),
    ("order.claimed", "bot_id"): lambda _chance: uuid4(),
    ("order.claimed", "attempt"): lambda chance: chance.randint(4, 9),
    ("order.completed", "via"): lambda _chance: "never",
    ("order.released", "reason"): lambda _chance: "expired",
    ("bot.created", "bot_id"): lambda _chance: uuid4(),
    ("bot.claimed", "order_id"): lambda _chance: uuid4(),
    ("bot.completed", "order_id"): lambda _chance: uuid4(),
    ("bot.failed", "order_id"): lambda _chance: uuid4(),
    ("bot.released", "order_id"): lambda _chance: uuid4(),
    ("bot.released", "reason"): lambda _chance: "expired",
    ("job.created", "job_id"): lambda _chance: uuid4(),
    ("job.created", "attempts_max"): lambda _chance: 0,
    ("job.claimed", "attempt"): lambda chance: chance.randint(4, 9),
    ("job.failed", "reason"): lambda _chance: "lease_expired",
    ("job.failed", "retry_at"): lambda _chance: "2020-01-01T00:00:00Z",
    ("job.snoozed", "until"): lambda _chance: "2999-01-01T00:00:00Z",
    ("restaurant.guest_joined", "place"): lambda chance: chance.randint(100, 900),
    ("ticket.created", "sequence"): lambda chance: chance.randint(100, 900),
    ("ticket.created", "position_at_join"): lambda chance: chance.randint(100, 900),
    ("ticket.created", "sealed"): lambda _chance: "QWRh",
    ("ticket.called", "round"): lambda chance: chance.randint(5, 9),
}
ACTORS = (COMPLETIONS, RECOVERY, DISPATCH, LEASES, "system:ghost", "enqueue", "")


def drop(story: Story, chance: random.Random) -> bool:
    gone = story.drop(chance.randrange(len(story.log)))
    rest = [entry for entry in story.log if entry.position > gone.position]
    is_followed = any(entry.aggregate == gone.aggregate for entry in rest)
    is_one_side = any(is_other_side(gone, entry) for entry in story.log)
    return is_followed or is_one_side or gone.topic.endswith("moved_to_dlq")


def is_other_side(one: Entry, other: Entry) -> bool:
    """Of the same claim, in the same command."""
    sides = {one.topic.partition(".")[0], other.topic.partition(".")[0]}
    is_same_claim = data_of(one).get("claim_id", one) == data_of(other).get("claim_id", other)
    return one.command_id == other.command_id and sides == {"order", "bot"} and is_same_claim


def duplicate(story: Story, chance: random.Random) -> bool:
    index = chance.randrange(len(story.log))
    story.log.insert(chance.randint(index, len(story.log)), story.log[index])
    return True


def record_again(story: Story, chance: random.Random) -> bool:
    """Records the event again, with its own version and position."""
    entry = chance.choice(story.log)
    story.then(entry.topic, entry.aggregate, actor=entry.actor, **data_of(entry))
    return entry.topic not in ("queue.configured", "restaurant.changed", "ticket.recalled")


def swap(story: Story, chance: random.Random) -> bool:
    one, other = sorted(chance.sample(range(len(story.log)), k=2))
    story.log[one], story.log[other] = story.log[other], story.log[one]
    return True


def change_places(story: Story, chance: random.Random) -> bool:
    """Swaps two events of one aggregate, including their positions."""
    entry = chance.choice(story.log)
    indexes = [n for n, other in enumerate(story.log) if other.aggregate == entry.aggregate]
    if len(indexes) < 2:
        return False
    one, other = chance.sample(indexes, k=2)
    first, second = story.log[one], story.log[other]
    story.log[one], story.log[other] = second, first
    story.edit(one, position=first.position)
    story.edit(other, position=second.position)
    return True


def change_fence(story: Story, chance: random.Random) -> bool:
    fenced = [n for n, entry in enumerate(story.log) if "claim_id" in data_of(entry)]
    index = chance.choice(fenced)
    old = data_of(story.log[index])["claim_id"]
    others = {data_of(story.log[n])["claim_id"] for n in fenced} - {old}
    story.say(index, claim_id=chance.choice([str(uuid4()), *sorted(others)[:1]]))
    return any(data_of(story.log[n])["claim_id"] == old for n in fenced)


def change_actor(story: Story, chance: random.Random) -> bool:
    index = chance.randrange(len(story.log))
    entry, actor = story.log[index], chance.choice(ACTORS)
    story.edit(index, actor=actor)
    may_as_well = actor == "enqueue" and entry.topic == "job.created"
    return actor != entry.actor and not may_as_well


def edit_payload(story: Story, chance: random.Random) -> bool:
    index = chance.randrange(len(story.log))
    entry = story.log[index]
    field = chance.choice([name for name in data_of(entry) if name != "claim_id"])
    spoil = CONSTRAINED.get((entry.topic, field))
    if spoil is None:
        return False
    before = data_of(entry)[field]
    story.say(index, **{field: spoil(chance)})
    return bool(data_of(story.log[index])[field] != before)


MUTATIONS: tuple[Mutation, ...] = (
    drop,
    duplicate,
    record_again,
    swap,
    change_places,
    change_fence,
    change_actor,
    edit_payload,
)


def mutate(story: Story, seed: int) -> tuple[str, bool]:
    chance = random.Random(seed)
    mutation = MUTATIONS[seed % len(MUTATIONS)]
    return mutation.__name__, mutation(story, chance)


def is_rejected(log: Log, **evidence: Any) -> bool:
    return any(one.verdict is Verdict.INVALID for one in judge(log, **evidence).values())


def missed(written: Story, seeds: range) -> tuple[Counter[str], dict[int, str]]:
    """How many mutations of each kind were meaningful, and those that were not rejected."""
    counts: Counter[str] = Counter()
    overlooked: dict[int, str] = {}
    for seed in seeds:
        story = written.copy()
        name, is_meaningful = mutate(story, seed)
        if is_meaningful:
            counts[name] += 1
            story.go_on()
            if not is_rejected(story.log):
                overlooked[seed] = name
    return counts, overlooked


def test_an_impossible_history_is_rejected(written: Story) -> None:
    counts, overlooked = missed(written, range(2 * len(MUTATIONS)))

    assert sum(counts.values()) > len(MUTATIONS)
    assert overlooked == {}


@pytest.mark.slow
def test_of_a_thousand_mutations_99_in_100_that_are_meaningful_are_rejected(
    written: Story,
) -> None:
    counts, overlooked = missed(written, range(1000))

    assert min(counts.values()) >= 20
    assert sum(counts.values()) >= 200
    assert len(overlooked) <= sum(counts.values()) // 100, overlooked


@pytest.mark.slow
def test_with_receipts_a_missing_event_is_found(written: Story, tmp_path: Path) -> None:
    receipts = tmp_path / "receipts.ndjson"
    lines = [{"commandId": command, "position": index} for command, index in written.receipts]
    receipts.write_bytes(b"\n".join(json.encode(line) for line in lines))
    overlooked = []
    for index in range(0, len(written.log), 5):
        story, replay = written.copy(), ReplayedState()
        gone = story.drop(index)
        if not is_rejected(
            story.log, replay=replay, client_records=ClientRecords(replay.facts, receipts, None)
        ):
            overlooked.append(gone)

    assert overlooked == []
