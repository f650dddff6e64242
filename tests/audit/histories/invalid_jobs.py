"""Invalid histories of jobs."""

from datetime import timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

from daybook.domain.jobs.create import unique_id
from tests.audit.histories.in_memory import Story, data_of
from tests.audit.histories.mutate import (
    breaks,
    claim_id_of,
    claim_job,
    create_keyed,
    end_both,
    fail_job,
)


@breaks("I-21")
def a_completed_job_is_claimed(story: Story) -> None:
    claim_job(story, "completed job")


@breaks("I-21")
def a_dead_job_is_completed(story: Story) -> None:
    story.then("job.completed", "dead job", claim_id=uuid7())


@breaks("I-21")
def a_cancelled_job_is_cancelled(story: Story) -> None:
    story.then("job.cancelled", "cancelled job")


@breaks("I-21")
def a_pending_job_is_requeued(story: Story) -> None:
    story.then("job.requeued", "pending job")


@breaks("I-21")
def a_held_job_is_created_again(story: Story) -> None:
    created = next(one for one in story.log if one.aggregate == story.cast["claimed job"])
    story.then("job.created", "claimed job", **data_of(created))


@breaks("I-22")
def an_attempt_is_left_out(story: Story) -> None:
    claim_job(story, "pending job", attempt=2)


@breaks("I-22")
def an_attempt_is_not_counted(story: Story) -> None:
    story.say(story.find("job.claimed", attempt=2), attempt=1)


@breaks("I-22")
def there_is_one_attempt_too_many(story: Story) -> None:
    for attempt in range(1, 5):
        claim_job(story, "pending job", attempt)
        fail_job(story, "pending job", retry_at=story.log[-1].recorded_at)


@breaks("I-22")
def a_last_failure_leaves_no_dead_letter(story: Story) -> None:
    fail_job(story, retryable=False)


@breaks("I-22")
def a_retryable_job_is_a_dead_letter(story: Story) -> None:
    fail_job(story, retry_at=story.log[-1].recorded_at + timedelta(seconds=1))
    story.then("job.moved_to_dlq", "claimed job", reason="attempts exhausted")


@breaks("I-22")
def an_order_dies_too_early(story: Story) -> None:
    end_both(story, "failed", error="burnt", retryable=True)
    story.then("order.moved_to_dlq", "claimed order", reason="attempts exhausted")


@breaks("I-22")
def an_order_does_not_die(story: Story) -> None:
    end_both(story, "failed", error="burnt", retryable=False)


@breaks("I-22")
def a_pending_job_is_a_dead_letter(story: Story) -> None:
    story.then("job.moved_to_dlq", "pending job", reason="nobody knows")


@breaks("I-23")
def an_old_claim_reports_a_job(story: Story) -> None:
    story.then("job.completed", "claimed job", claim_id=uuid7())


@breaks("I-23")
def a_job_without_a_claim_is_reported(story: Story) -> None:
    story.then("job.released", "pending job", claim_id=uuid7())


@breaks("I-23")
def a_claim_id_is_used_for_two_jobs(story: Story) -> None:
    claim_job(story, "pending job", claim_id=claim_id_of(story, "claimed job"))


@breaks("I-23")
def a_claim_id_is_used_for_two_orders(story: Story) -> None:
    story.claim("pending order", "idle bot", claim_id=claim_id_of(story))


@breaks("I-23")
def a_snoozed_job_names_another_claim(story: Story) -> None:
    story.say(story.find("job.snoozed"), claim_id=uuid7())


@breaks("I-24")
def the_second_in_the_lane_is_first(story: Story) -> None:
    claim_job(story, "second in lane")


@breaks("I-24")
def the_second_in_the_lane_does_not_wait(story: Story) -> None:
    claim_job(story, "first in lane")
    claim_job(story, "second in lane")


@breaks("I-24")
def the_first_in_the_lane_is_given_back(story: Story) -> None:
    claim_job(story, "first in lane")
    story.then("job.released", "first in lane", claim_id=claim_id_of(story, "first in lane"))
    claim_job(story, "second in lane")


@breaks("I-24")
def a_dead_job_does_not_hold_up_its_lane(story: Story) -> None:
    claim_job(story, "first in lane")
    fail_job(story, "first in lane", retryable=False)
    story.then("job.moved_to_dlq", "first in lane", reason="not retryable")
    claim_job(story, "second in lane")


@breaks("I-24")
def a_job_names_an_operation_that_was_not_accepted(story: Story) -> None:
    created = next(
        index for index, one in enumerate(story.log) if one.aggregate == story.cast["first in lane"]
    )
    story.say(created, operation_id=uuid7())


@breaks("I-25")
def a_retry_is_early(story: Story) -> None:
    fail_job(story, retry_at=story.log[-1].recorded_at + timedelta(seconds=60))
    claim_job(story, "claimed job", attempt=2)


@breaks("I-25")
def a_snoozed_job_wakes_early(story: Story) -> None:
    until = story.log[-1].recorded_at + timedelta(seconds=60)
    story.then(
        "job.snoozed", "claimed job", claim_id=claim_id_of(story, "claimed job"), until=until
    )
    claim_job(story, "claimed job")


@breaks("I-25")
def a_retry_is_set_before_the_failure(story: Story) -> None:
    fail_job(story, retry_at=story.log[-1].recorded_at - timedelta(seconds=60))


@breaks("I-25")
def a_requeued_job_does_not_wait(story: Story) -> None:
    run_at = story.log[-1].recorded_at + timedelta(seconds=60)
    story.then("job.requeued", "dead job", run_at=run_at)
    claim_job(story, "dead job")


@breaks("I-26")
def a_key_has_two_jobs(story: Story) -> None:
    create_keyed(story, uuid7())


@breaks("I-26")
def a_key_begins_anew_too_early(story: Story) -> None:
    create_keyed(story, story.cast["keyed job"], scope="unfinished")


@breaks("I-26")
def a_key_for_ever_begins_anew(story: Story) -> None:
    story.then("job.cancelled", "keyed job")
    create_keyed(story, story.cast["keyed job"])


@breaks("I-26")
def a_key_comes_back_beside_another(story: Story) -> None:
    story.then("job.cancelled", "keyed job")
    create_keyed(story, unique_id("other", "send", "k"))
    story.then("job.requeued", "keyed job")


@breaks("I-28")
def a_follow_up_is_lost(story: Story) -> None:
    story.drop(follow_up(story))


@breaks("I-28")
def the_completion_of_a_follow_up_is_lost(story: Story) -> None:
    command_id = story.log[follow_up(story)].command_id
    indexes = [n for n, entry in enumerate(story.log) if entry.command_id == command_id]
    story.drop(indexes[0])


@breaks("I-28")
def a_follow_up_is_not_the_completions(story: Story) -> None:
    index, job_id = follow_up(story), uuid7()
    story.edit(index, aggregate=job_id)
    story.say(index, job_id=job_id)


@breaks("I-28")
def a_follow_up_is_created_twice(story: Story) -> None:
    index = follow_up(story)
    story.log.insert(index + 1, story.log[index])


@breaks("I-28")
def a_completion_creates_a_stranger(story: Story) -> None:
    completed = story.then(
        "job.completed", "claimed job", claim_id=claim_id_of(story, "claimed job")
    )
    create_keyed(story, uuid7(), key="stranger")
    story.edit(len(story.log) - 1, command_id=completed.command_id)


@breaks("I-28")
def the_last_follow_up_is_lost(story: Story) -> None:
    story.drop(follow_up(story) + 1)


@breaks("I-28")
def a_completion_says_more_than_it_created(story: Story) -> None:
    claim_id = claim_id_of(story, "claimed job")
    story.then("job.completed", "claimed job", claim_id=claim_id, follow_ups_count=1)


def follow_up(story: Story) -> int:
    """Index of the second of three follow-ups."""
    by_command: dict[UUID, list[int]] = {}
    for index, entry in enumerate(story.log):
        by_command.setdefault(entry.command_id, []).append(index)
    (indexes,) = (
        indexes
        for indexes in by_command.values()
        if [story.log[index].topic for index in indexes] == ["job.completed", *["job.created"] * 3]
    )
    return indexes[2]
