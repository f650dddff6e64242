"""Invalid histories of clock jumps."""

from datetime import timedelta

from daybook.domain.clock import CLOCK_ID
from tests.audit.histories.in_memory import COMPLETIONS, LEASES, Story
from tests.audit.histories.mutate import breaks, claim_job, end_both, fail_job

CLOCK = "system:clock"


def jump(story: Story, seconds: float) -> None:
    """A jump that is detected after one second."""
    story.then("clock.jumped", CLOCK_ID, actor=CLOCK, seconds=seconds + 1, within_seconds=1.5)
    story.say(len(story.log) - 1, seconds=seconds)


def expire(story: Story, name: str, **says: object) -> None:
    retry_at = story.log[-1].recorded_at + timedelta(seconds=1)
    fail_job(story, name, reason="lease_expired", retry_at=retry_at, actor=LEASES, **says)


@breaks("I-44")
def a_jump_of_an_hour_ends_a_lease(story: Story) -> None:
    claim_job(story, "pending job")
    jump(story, 3600)
    expire(story, "pending job")


@breaks("I-44")
def a_measured_lease_ends_early(story: Story) -> None:
    claim_job(story, "pending job")
    expire(story, "pending job", lease_seconds=90)


@breaks("I-44")
def a_lease_ends_early_after_a_jump_there_and_back(story: Story) -> None:
    jump(story, 86_400)
    claim_job(story, "pending job")
    story.go_on(80)
    jump(story, -86_400)
    expire(story, "pending job", lease_seconds=90)


@breaks("I-44")
def a_jump_before_the_claim_does_not_count(story: Story) -> None:
    jump(story, -3600)
    story.go_on(10)
    claim_job(story, "pending job")
    jump(story, 60)
    story.go_on(10)
    expire(story, "pending job", lease_seconds=90)


@breaks("I-20")
def a_jump_completes_an_order(story: Story) -> None:
    jump(story, 3600)
    end_both(story, "completed", via="timer", actor=COMPLETIONS)
