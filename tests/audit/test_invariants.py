"""Every invariant accepts the valid history and rejects at least three invalid ones."""

from collections import Counter
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.audit.invariant import Verdict
from daybook.audit.runner import KINDS, SHOWN_AFTER, SHOWN_BEFORE
from daybook.domain.quarantine import quarantine_id
from tests.audit.histories.in_memory import Story, judge
from tests.audit.histories.invalid import SPOILT, Spoil

# Other tests cover invariants that need more than the log.
BY_CLIENTS = {"I-09", "I-10", "I-11", "I-12", "I-27", "I-37"}
BY_EARLIER_EXPORT = {"I-01"}
BY_THE_SERVICE = {"I-33", "I-34", "I-36", "I-39"}
# Logs are not sealed yet, and the valid history has no unreadable event.
BY_SEALS, BY_FAULTS = {"I-08"}, {"I-40"}
BY_THE_LOG = (
    {kind.id for kind in KINDS} - BY_CLIENTS - BY_EARLIER_EXPORT - BY_THE_SERVICE - BY_SEALS
)


def test_every_invariant_accepts_the_valid_history(story: Story) -> None:
    findings = judge(story.log)

    bad = {one.id: one.violation for one in findings.values() if one.verdict is Verdict.INVALID}
    assert bad == {}
    assert {one.id for one in findings.values() if one.verdict is Verdict.VALID} == (
        BY_THE_LOG - BY_FAULTS
    )


@pytest.mark.parametrize("part", range(1, 20))
def test_an_export_may_end_anywhere(story: Story, part: int) -> None:
    """Even in the middle of a command."""
    del story.log[len(story.log) * part // 20 :]

    assert [one for one in judge(story.log).values() if one.verdict is Verdict.INVALID] == []


def test_every_invariant_that_the_log_alone_proves_has_three_invalid_histories() -> None:
    counts = Counter(one for one, _ in SPOILT)

    assert set(counts) == BY_THE_LOG
    assert min(counts.values()) >= 3


# SX-04: stuck aggregates, as I-38 defines them.
@pytest.mark.parametrize(("broken", "spoil"), SPOILT, ids=lambda one: getattr(one, "__name__", one))
def test_an_invalid_history_is_rejected_by_the_invariant_it_breaks(
    story: Story, broken: str, spoil: Spoil
) -> None:
    spoil(story)
    story.go_on()

    finding = judge(story.log, broken)[broken]

    assert finding.verdict is Verdict.INVALID
    assert finding.violation is not None
    assert len(finding.surroundings) <= SHOWN_BEFORE + 1 + SHOWN_AFTER
    index = finding.violation.index
    assert index is None or story.log[index] in finding.surroundings


# I-41: up to 0.1.0 `keys create` and `keys rotate` without --reason recorded an empty reason.
@pytest.mark.parametrize("reason", ["", None, "opening"])
def test_a_key_may_be_issued_without_a_reason(story: Story, reason: str | None) -> None:
    issued: dict[str, Any] = {
        "name": "k3v9q1m8x2ab",
        "holder": "the till",
        "scopes": ["client"],
        "binding": {},
        "digest": "00",
        "reason": reason,
    }
    key, operator = uuid7(), "operator:ada"
    at = story.then("key.issued", key, actor=operator, **issued).recorded_at
    rotated: dict[str, Any] = {"digest": "01", "earlier_until": at, "reason": reason}
    story.then("key.rotated", key, actor=operator, **rotated)

    assert judge(story.log, "I-41")["I-41"].verdict is Verdict.VALID


def test_an_aggregate_set_aside_without_a_detection_is_named_with_a_reason(  # I-40
    story: Story,
) -> None:
    index = story.find("order.completed")
    story.edit(index, topic="order.eaten")
    aggregate = story.log[index].aggregate
    story.then(
        "quarantine.set_aside",
        quarantine_id(aggregate),
        actor="operator:ada",
        aggregate_id=aggregate,
        reason="an older version wrote it",
    )
    story.go_on()

    violation = judge(story.log, "I-40")["I-40"].violation

    assert violation is not None
    assert violation.position == story.log[index].position
    assert violation.reason == (
        "it was not put into quarantine: set aside without quarantine.detected"
    )
