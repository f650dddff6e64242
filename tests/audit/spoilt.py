"""Bad histories, at least three for each invariant: the good one, with one thing wrong in it."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from msgspec import Raw
from uuid_utils.compat import uuid7

from domain.workshop import unique_id
from tests.audit.story import (
    COMPLETIONS,
    DISPATCH,
    LEASES,
    RECOVERY,
    Story,
    claim_of,
    said,
)

Spoil = Callable[[Story], None]
SPOILT: list[tuple[str, Spoil]] = []


def breaks(*ids: str) -> Callable[[Spoil], Spoil]:
    def register(spoil: Spoil) -> Spoil:
        SPOILT.extend((one, spoil) for one in ids)
        return spoil

    return register


def held(story: Story, name: str = "held order") -> UUID:
    """The claim that holds it."""
    return claim_of(story.log[story.last_of(name)])


def end_both(story: Story, deed: str, **fields: object) -> None:
    """The claim that is open at the end comes to an end on both sides, as `deed` says."""
    claim_id, actor = held(story), str(fields.pop("actor", "open"))
    seconds = float(str(fields.pop("seconds", 0.001)))
    on_bot = {key: value for key, value in fields.items() if key in ("error", "reason")}
    entry = story.then(
        f"bot.{deed}",
        "busy bot",
        actor=actor,
        seconds=seconds,
        claim_id=claim_id,
        order_id=story.cast["held order"],
        **on_bot,
    )
    story.then(
        f"order.{deed}",
        "held order",
        actor=actor,
        seconds=0,
        command_id=entry.command_id,
        claim_id=claim_id,
        **fields,
    )


# The log


@breaks("I-02")
def a_version_is_missing(story: Story) -> None:
    story.drop(story.find("order.claimed"))


@breaks("I-02")
def a_version_comes_twice(story: Story) -> None:
    place = story.find("job.claimed")
    story.log.insert(place + 1, story.log[place])


@breaks("I-02")
def an_aggregate_begins_at_two(story: Story) -> None:
    story.drop(story.find("bot.created"))


@breaks("I-02")
def what_has_finished_begins_again(story: Story) -> None:
    begun = story.log[story.find("order.created")]
    story.then("order.created", begun.aggregate, **said(begun))
    story.edit(len(story.log) - 1, version=1)


@breaks("I-03")
def two_events_have_one_position(story: Story) -> None:
    story.edit(10, position=story.log[9].position)


@breaks("I-03")
def two_events_have_changed_places(story: Story) -> None:
    story.log[20], story.log[21] = story.log[21], story.log[20]


@breaks("I-03")
def an_event_comes_again_at_the_end(story: Story) -> None:
    story.log.append(story.log[3])


@breaks("I-04")
def a_topic_is_unknown(story: Story) -> None:
    story.edit(story.find("order.completed"), topic="order.eaten")


@breaks("I-04")
def an_event_lacks_a_field(story: Story) -> None:
    story.edit(story.find("job.claimed"), data=Raw(b'{"at":"2026-01-01T00:00:00Z"}'))


@breaks("I-04")
def an_event_tells_of_another_order(story: Story) -> None:
    story.say(story.find("order.created"), order_id=uuid7())


@breaks("I-04")
def an_order_gets_the_event_of_a_bot(story: Story) -> None:
    story.then("bot.deleted", "pending order")


@breaks("I-04")
def the_first_event_is_no_beginning(story: Story) -> None:
    story.then("order.deleted", uuid7())


@breaks("I-05")
def a_command_id_is_used_again_later(story: Story) -> None:
    story.then("order.deleted", "pending order", command_id=story.log[0].command_id)


@breaks("I-05")
def a_command_has_two_actors(story: Story) -> None:
    place = story.find("order.completed", via="report")
    story.edit(place, actor="somebody else")


@breaks("I-05")
def a_command_was_decided_at_two_times(story: Story) -> None:
    place = story.find("order.claimed")
    story.say(place, at=story.log[place].recorded_at + timedelta(seconds=1))


@breaks("I-05")
def a_command_has_two_causes(story: Story) -> None:
    story.edit(story.find("order.claimed"), causation_id=1)


@breaks("I-06")
def the_cause_is_the_event_itself(story: Story) -> None:
    story.edit(30, causation_id=story.log[30].position)


@breaks("I-06")
def the_cause_comes_later(story: Story) -> None:
    story.edit(30, causation_id=story.log[40].position)


@breaks("I-06")
def the_cause_was_never_recorded(story: Story) -> None:
    story.drop(story.find("bot.created"))
    story.edit(30, causation_id=1)


@breaks("I-07")
def dispatch_creates_an_order(story: Story) -> None:
    story.edit(story.find("order.created"), actor=DISPATCH)


@breaks("I-07")
def a_client_completes_by_time(story: Story) -> None:
    story.edit(story.find("order.completed", via="timer"), actor="open")


@breaks("I-07")
def a_process_manager_is_unknown(story: Story) -> None:
    story.edit(story.find("job.claimed"), actor="system:mischief")


@breaks("I-07")
def whoever_enqueues_also_completes(story: Story) -> None:
    story.edit(story.find("job.completed"), actor="enqueue")


@breaks("I-07")
def a_client_lets_a_lease_expire(story: Story) -> None:
    story.edit(story.find("job.failed", reason="lease_expired"), actor="open")


@breaks("I-35")
def completions_act_twice_on_one_claim(story: Story) -> None:
    done = story.log[story.find("bot.completed")]
    for _ in range(2):
        story.then("bot.completed", "busy bot", actor=COMPLETIONS, **said(done))


@breaks("I-35")
def leases_act_twice_on_one_claim(story: Story) -> None:
    expired = story.log[story.find("job.failed", reason="lease_expired")]
    story.then("job.failed", "held job", actor=LEASES, **said(expired))


@breaks("I-35")
def one_event_is_answered_by_two_commands(story: Story) -> None:
    for name in ("pending order", "later order"):
        story.then("order.deleted", name, actor=RECOVERY)
        story.edit(len(story.log) - 1, causation_id=1)


@breaks("I-41")
def an_event_has_no_actor(story: Story) -> None:
    story.edit(5, actor="")


@breaks("I-41")
def an_actor_is_a_blank(story: Story) -> None:
    story.edit(story.find("queue.configured"), actor="  ")


@breaks("I-41")
def a_dead_letter_gives_no_reason(story: Story) -> None:
    story.say(story.find("job.moved_to_dlq"), reason="")


# Orders and bots


@breaks("I-13")
def a_held_order_is_claimed(story: Story) -> None:
    story.claim("held order", "idle bot", attempt=2)


@breaks("I-13")
def a_claim_goes_on_after_its_end_was_lost(story: Story) -> None:
    story.drop(story.find("order.failed", retryable=True))


@breaks("I-13")
def an_order_is_claimed_twice_in_one_command(story: Story) -> None:
    entry = story.claim("pending order", "idle bot")
    story.then("order.claimed", "pending order", command_id=entry.command_id, **said(entry))


@breaks("I-14")
def a_busy_bot_claims(story: Story) -> None:
    story.claim("pending order", "busy bot")


@breaks("I-14")
def a_bot_claims_the_same_order_again(story: Story) -> None:
    story.claim("held order", "busy bot", attempt=2)


@breaks("I-14")
def a_bot_claims_on_after_its_end_was_lost(story: Story) -> None:
    story.drop(story.find("bot.completed"))


@breaks("I-15")
def only_the_order_is_claimed(story: Story) -> None:
    entry = story.claim("pending order", "idle bot")
    story.log = type(story.log)(one for one in story.log if one.topic != "bot.claimed")
    assert entry in story.log


@breaks("I-15")
def only_the_bot_is_free_again(story: Story) -> None:
    end_both(story, "completed", via="report")
    story.drop(len(story.log) - 1)


@breaks("I-15")
def the_sides_name_different_bots(story: Story) -> None:
    story.say(story.find("order.claimed"), bot_id=story.cast["idle bot"])


@breaks("I-15")
def the_sides_end_in_two_commands(story: Story) -> None:
    end_both(story, "completed", via="report")
    story.edit(len(story.log) - 1, command_id=uuid7())


@breaks("I-16")
def a_busy_bot_is_deleted(story: Story) -> None:
    story.then("bot.deleted", "busy bot")


@breaks("I-16")
def a_held_order_is_deleted(story: Story) -> None:
    story.then("order.deleted", "held order")


@breaks("I-16")
def a_deleted_bot_claims(story: Story) -> None:
    story.claim("pending order", "deleted bot")


@breaks("I-16")
def an_order_is_claimed_by_nobody(story: Story) -> None:
    story.cast["nobody"] = uuid7()
    story.claim("pending order", "nobody")


@breaks("I-17")
def an_order_is_completed_twice(story: Story) -> None:
    done = story.log[story.last_of("complete order")]
    story.then("order.completed", "complete order", **said(done))


@breaks("I-17")
def an_old_claim_completes(story: Story) -> None:
    story.then("order.completed", "held order", claim_id=uuid7(), via="report")


@breaks("I-17")
def a_complete_order_is_claimed(story: Story) -> None:
    story.claim("complete order", "idle bot", attempt=2)


@breaks("I-17")
def a_deleted_order_is_claimed(story: Story) -> None:
    story.claim("deleted order", "idle bot")


@breaks("I-17")
def a_pending_order_is_requeued(story: Story) -> None:
    story.then("order.requeued", "pending order")


@breaks("I-17")
def what_was_not_deleted_is_restored(story: Story) -> None:
    story.then("order.restored", "pending order")


@breaks("I-17")
def a_bot_ends_a_claim_that_it_does_not_hold(story: Story) -> None:
    order_id = story.cast["held order"]
    story.then("bot.completed", "busy bot", claim_id=uuid7(), order_id=order_id)


def wait_long(story: Story, seconds: float = 60.0) -> None:
    """Time goes by, in which something else happens."""
    story.then("order.created", one := uuid7(), seconds=seconds, **new_order(one, 10_001))


def new_order(order_id: UUID, number: int, kind: str = "NORMAL") -> dict[str, object]:
    return {"order_id": order_id, "number": number, "kind": kind, "attempts_max": 3}


@breaks("I-18")
def a_lower_number_is_passed_over(story: Story) -> None:
    wait_long(story)
    story.claim("later order", "idle bot", actor=DISPATCH)
    wait_long(story)


@breaks("I-18")
def a_vip_is_passed_over(story: Story) -> None:
    story.then("order.created", one := uuid7(), **new_order(one, 10_000, "VIP"))
    wait_long(story)
    story.claim("pending order", "idle bot", actor=DISPATCH)
    wait_long(story)


@breaks("I-18")
def who_was_passed_over_is_taken_much_later(story: Story) -> None:
    wait_long(story)
    story.claim("later order", "idle bot", actor=DISPATCH)
    story.cast["other bot"] = uuid7()
    story.then(
        "bot.created",
        "other bot",
        seconds=30,
        bot_id=story.cast["other bot"],
        auto_claim=True,
        completion="timer",
    )
    story.claim("pending order", "other bot", actor=DISPATCH)


@breaks("I-19")
def a_number_is_given_twice(story: Story) -> None:
    number = said(story.log[story.find("order.created")])["number"]
    story.then("order.created", one := uuid7(), **new_order(one, number))


@breaks("I-19")
def numbers_fall(story: Story) -> None:
    story.then("order.created", one := uuid7(), **new_order(one, 20_000))
    story.then("order.created", other := uuid7(), seconds=1, **new_order(other, 19_000))


@breaks("I-19")
def two_neighbours_have_one_number(story: Story) -> None:
    first = said(story.log[story.find("order.created", 4)])
    story.say(story.find("order.created", 5), number=first["number"])


@breaks("I-20")
def a_timer_is_early(story: Story) -> None:
    end_both(story, "completed", via="timer", actor=COMPLETIONS)


@breaks("I-20")
def a_claim_expires_early(story: Story) -> None:
    end_both(story, "released", reason="expired", actor=RECOVERY)


@breaks("I-20")
def a_timer_is_half_a_minute_early(story: Story) -> None:
    end_both(story, "completed", via="timer", actor=COMPLETIONS, seconds=570)


@breaks("I-38")
def a_claim_stays_open(story: Story) -> None:
    wait_long(story, seconds=3600)


@breaks("I-38")
def a_claim_of_some_seconds_stays_open(story: Story) -> None:
    entry = story.log[place := story.last_of("held order")]
    story.say(place, due_at=entry.recorded_at + timedelta(seconds=3))
    wait_long(story, seconds=15)


@breaks("I-38")
def the_end_of_a_claim_is_lost(story: Story) -> None:
    story.drop(story.find("order.completed", via="timer"))
    wait_long(story, seconds=30)


# Jobs


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
    created = next(one for one in story.log if one.aggregate == story.cast["held job"])
    story.then("job.created", "held job", **said(created))


def claim_job(story: Story, name: str, attempt: int = 1, claim_id: UUID | None = None) -> None:
    until = story.log[-1].recorded_at + timedelta(seconds=90)
    story.then(
        "job.claimed",
        name,
        claim_id=claim_id or uuid7(),
        worker="w1",
        lease_until=until,
        attempt=attempt,
    )


def fail_job(story: Story, name: str = "held job", **fields: object) -> None:
    told = {"error": "busy", "reason": "error", "retryable": True, "retry_at": None, **fields}
    story.then("job.failed", name, claim_id=held(story, name), **told)


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
def what_may_be_retried_is_a_dead_letter(story: Story) -> None:
    fail_job(story, retry_at=story.log[-1].recorded_at + timedelta(seconds=1))
    story.then("job.moved_to_dlq", "held job", reason="attempts exhausted")


@breaks("I-22")
def an_order_dies_too_early(story: Story) -> None:
    end_both(story, "failed", error="burnt", retryable=True)
    story.then("order.moved_to_dlq", "held order", reason="attempts exhausted")


@breaks("I-22")
def an_order_does_not_die(story: Story) -> None:
    end_both(story, "failed", error="burnt", retryable=False)


@breaks("I-22")
def a_pending_job_is_a_dead_letter(story: Story) -> None:
    story.then("job.moved_to_dlq", "pending job", reason="nobody knows")


@breaks("I-23")
def an_old_claim_reports_a_job(story: Story) -> None:
    story.then("job.completed", "held job", claim_id=uuid7())


@breaks("I-23")
def a_job_is_reported_that_nobody_holds(story: Story) -> None:
    story.then("job.released", "pending job", claim_id=uuid7())


@breaks("I-23")
def a_claim_id_is_used_for_two_jobs(story: Story) -> None:
    claim_job(story, "pending job", claim_id=held(story, "held job"))


@breaks("I-23")
def a_claim_id_is_used_for_two_orders(story: Story) -> None:
    story.claim("pending order", "idle bot", claim_id=held(story))


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
    story.then("job.released", "first in lane", claim_id=held(story, "first in lane"))
    claim_job(story, "second in lane")


@breaks("I-25")
def a_retry_is_early(story: Story) -> None:
    fail_job(story, retry_at=story.log[-1].recorded_at + timedelta(seconds=60))
    claim_job(story, "held job", attempt=2)


@breaks("I-25")
def a_snoozed_job_wakes_early(story: Story) -> None:
    until = story.log[-1].recorded_at + timedelta(seconds=60)
    story.then("job.snoozed", "held job", claim_id=held(story, "held job"), until=until)
    claim_job(story, "held job")


@breaks("I-25")
def a_retry_is_set_before_the_failure(story: Story) -> None:
    fail_job(story, retry_at=story.log[-1].recorded_at - timedelta(seconds=60))


@breaks("I-25")
def a_requeued_job_does_not_wait(story: Story) -> None:
    run_at = story.log[-1].recorded_at + timedelta(seconds=60)
    story.then("job.requeued", "dead job", run_at=run_at)
    claim_job(story, "dead job")


def create_keyed(story: Story, job_id: UUID, key: str = "k", scope: str = "forever") -> None:
    story.then(
        "job.created",
        job_id,
        job_id=job_id,
        number=5000,
        queue="print",
        type="send",
        payload=None,
        priority=5,
        attempts_max=3,
        lease_seconds=90.0,
        unique_key=key,
        unique_scope=scope,
    )


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
def a_follow_up_is_not_the_completions(story: Story) -> None:
    place, job_id = follow_up(story), uuid7()
    story.edit(place, aggregate=job_id)
    story.say(place, job_id=job_id)


@breaks("I-28")
def a_follow_up_is_created_twice(story: Story) -> None:
    place = follow_up(story)
    story.log.insert(place + 1, story.log[place])


@breaks("I-28")
def a_completion_creates_a_stranger(story: Story) -> None:
    completed = story.then("job.completed", "held job", claim_id=held(story, "held job"))
    create_keyed(story, uuid7(), key="stranger")
    story.edit(len(story.log) - 1, command_id=completed.command_id)


def follow_up(story: Story) -> int:
    """The place of the second of three follow-ups."""
    by_command: dict[UUID, list[int]] = {}
    for place, entry in enumerate(story.log):
        by_command.setdefault(entry.command_id, []).append(place)
    (places,) = (
        places
        for places in by_command.values()
        if [story.log[place].topic for place in places] == ["job.completed", *["job.created"] * 3]
    )
    return places[2]
