"""Valid histories with clock jumps stay valid."""

from collections.abc import Callable

import pytest

from daybook.audit.invariant import Verdict
from tests.audit.histories.in_memory import COMPLETIONS, LATER_SECONDS, Story, judge
from tests.audit.histories.invalid_clock import expire, jump
from tests.audit.histories.mutate import claim_job, end_both


def the_lease_lasts_after_an_hour_forward(story: Story) -> None:
    claim_job(story, "pending job")
    jump(story, 3600)
    story.go_on(90)
    expire(story, "pending job", lease_seconds=90)


def the_lease_ends_after_an_hour_back(story: Story) -> None:
    claim_job(story, "pending job")
    story.go_on(60)
    jump(story, -3600)
    story.go_on(31)
    expire(story, "pending job", lease_seconds=90)


def the_claim_is_made_before_the_jump_is_noticed(story: Story) -> None:
    story.go_on(3600)
    claim_job(story, "pending job")
    # The hour passed between two looks, and half a second after the claim the leader noticed it.
    jump(story, -0.5)
    story.go_on(90)
    expire(story, "pending job", lease_seconds=90)


def an_order_is_complete_after_a_day_back(story: Story) -> None:
    story.go_on(LATER_SECONDS)
    jump(story, -86_400)
    end_both(story, "completed", via="timer", actor=COMPLETIONS)


@pytest.mark.parametrize(
    "tell",
    [
        the_lease_lasts_after_an_hour_forward,
        the_lease_ends_after_an_hour_back,
        the_claim_is_made_before_the_jump_is_noticed,
        an_order_is_complete_after_a_day_back,
    ],
)
def test_a_measured_expiry_is_valid(story: Story, tell: Callable[[Story], None]) -> None:  # I-44
    tell(story)

    findings = judge(story.log, "I-20", "I-38", "I-44")
    bad = {one.id: one.violation for one in findings.values() if one.verdict is Verdict.INVALID}
    assert bad == {}
