"""Invalid histories of orders and bots."""

from datetime import timedelta
from typing import Any

from uuid_utils.compat import uuid7

from daybook.domain.schedules.schedule import schedule_id
from tests.audit.histories.in_memory import (
    ADMIN,
    COMPLETIONS,
    DISPATCH,
    RECOVERY,
    Log,
    Story,
    data_of,
)
from tests.audit.histories.mutate import breaks, create_order, end_both


@breaks("I-13")
def a_held_order_is_claimed(story: Story) -> None:
    story.claim("claimed order", "idle bot", attempt=2)


@breaks("I-13")
def a_claim_goes_on_after_its_end_was_lost(story: Story) -> None:
    story.drop(story.find("order.failed", retryable=True))


@breaks("I-13")
def an_order_is_claimed_twice_in_one_command(story: Story) -> None:
    entry = story.claim("pending order", "idle bot")
    story.then("order.claimed", "pending order", command_id=entry.command_id, **data_of(entry))


@breaks("I-14")
def a_busy_bot_claims(story: Story) -> None:
    story.claim("pending order", "busy bot")


@breaks("I-14")
def a_bot_claims_the_same_order_again(story: Story) -> None:
    story.claim("claimed order", "busy bot", attempt=2)


@breaks("I-14")
def a_bot_claims_on_after_its_end_was_lost(story: Story) -> None:
    story.drop(story.find("bot.completed"))


@breaks("I-15")
def only_the_order_is_claimed(story: Story) -> None:
    entry = story.claim("pending order", "idle bot")
    story.log = Log(one for one in story.log if one.topic != "bot.claimed")
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
    story.then("order.deleted", "claimed order")


@breaks("I-16")
def a_deleted_bot_claims(story: Story) -> None:
    story.claim("pending order", "deleted bot")


@breaks("I-16")
def a_bot_out_of_service_claims(story: Story) -> None:
    story.claim("pending order", "dead bot")


@breaks("I-16")
def a_bot_works_on_after_its_last_failure(story: Story) -> None:
    story.drop(story.last_of("dead bot"))
    story.claim("pending order", "dead bot")


@breaks("I-16")
def a_bot_stays_in_service_after_its_last_failure(story: Story) -> None:
    story.drop(story.last_of("dead bot"))


@breaks("I-16")
def a_bot_that_has_not_failed_is_taken_out_of_service(story: Story) -> None:
    story.then("bot.moved_to_dlq", "idle bot", reason="spite", failures=5, errors=["none"])


@breaks("I-16")
def a_bot_in_service_is_restored(story: Story) -> None:
    story.then("bot.restored", "idle bot", actor=ADMIN, because="repaired")


@breaks("I-16")
def an_order_is_claimed_by_a_missing_bot(story: Story) -> None:
    story.cast["missing bot"] = uuid7()
    story.claim("pending order", "missing bot")


@breaks("I-17")
def an_order_is_completed_twice(story: Story) -> None:
    done = story.log[story.last_of("complete order")]
    story.then("order.completed", "complete order", **data_of(done))


@breaks("I-17")
def an_old_claim_completes(story: Story) -> None:
    story.then("order.completed", "claimed order", claim_id=uuid7(), via="report")


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
def an_order_that_is_not_deleted_is_restored(story: Story) -> None:
    story.then("order.restored", "pending order")


@breaks("I-17")
def a_bot_ends_a_claim_that_it_does_not_hold(story: Story) -> None:
    order_id = story.cast["claimed order"]
    story.then("bot.completed", "busy bot", claim_id=uuid7(), order_id=order_id)


def two_more_bots(story: Story) -> None:
    for name in ("first bot", "second bot"):
        story.go_on()
        story.cast[name] = story.log[-1].aggregate


def two_more_orders(story: Story, kind: str = "NORMAL") -> None:
    for number, name in enumerate(("first order", "second order"), 10_000):
        create_order(story, number, kind=kind)
        story.cast[name] = story.log[-1].aggregate


@breaks("I-18")
def a_lower_number_is_passed_over(story: Story) -> None:
    two_more_bots(story)
    two_more_orders(story)
    for name in ("first", "second"):
        story.claim(f"{name} order", f"{name} bot", actor=DISPATCH)
        story.go_on()


@breaks("I-18")
def a_vip_is_passed_over(story: Story) -> None:
    two_more_bots(story)
    create_order(story, 10_000, kind="VIP")
    story.claim("pending order", "first bot", actor=DISPATCH)
    story.go_on(6)
    story.claim("later order", "second bot", actor=DISPATCH)


@breaks("I-18")
def a_vip_is_passed_over_by_later_ones(story: Story) -> None:
    two_more_bots(story)
    create_order(story, 9_000, kind="VIP")
    two_more_orders(story, kind="VIP")
    for name in ("first", "second"):
        story.claim(f"{name} order", f"{name} bot", actor=DISPATCH)
        story.go_on(20)


@breaks("I-19")
def a_number_is_given_twice(story: Story) -> None:
    number = data_of(story.log[story.find("order.created")])["number"]
    create_order(story, number)


@breaks("I-19")
def numbers_fall(story: Story) -> None:
    create_order(story, 20_000)
    create_order(story, 19_000, after=1)


@breaks("I-19")
def two_neighbours_have_one_number(story: Story) -> None:
    first = data_of(story.log[story.find("order.created", 4)])
    story.say(story.find("order.created", 5), number=first["number"])


@breaks("I-20")
def a_timer_is_early(story: Story) -> None:
    end_both(story, "completed", via="timer", actor=COMPLETIONS)


@breaks("I-20")
def a_claim_expires_early(story: Story) -> None:
    end_both(story, "released", reason="expired", actor=RECOVERY)


@breaks("I-20")
def a_timer_is_some_seconds_early(story: Story) -> None:
    end_both(story, "completed", via="timer", actor=COMPLETIONS, after=500)


@breaks("I-38")
def a_claim_stays_open(story: Story) -> None:
    story.go_on(3600)


@breaks("I-38")
def a_claim_of_some_seconds_stays_open(story: Story) -> None:
    entry = story.log[index := story.last_of("claimed order")]
    story.say(index, due_at=entry.recorded_at + timedelta(seconds=3))
    story.go_on(15)


@breaks("I-38")
def the_end_of_a_claim_is_lost(story: Story) -> None:
    story.drop(story.find("order.completed", via="timer"))
    story.go_on(30)


def idle_bot(story: Story, *, after: float = 0.001) -> None:
    bot_id = uuid7()
    says: dict[str, Any] = {"bot_id": bot_id, "auto_claim": True, "completion": "timer"}
    story.then("bot.created", bot_id, seconds=after, **says)


@breaks("I-38")
def an_order_waits_beside_an_idle_bot(story: Story) -> None:
    idle_bot(story)


@breaks("I-38")
def an_order_comes_to_an_idle_bot_and_waits(story: Story) -> None:
    for name in ("pending order", "later order"):
        story.then("order.deleted", name)
    idle_bot(story)
    create_order(story, 30_000, after=40)


@breaks("I-38")
def a_schedule_is_overdue(story: Story) -> None:
    job: dict[str, Any] = {"queue": "email", "type": "send", "payload": None, "priority": 5}
    job |= {"attempts_max": 3, "lease_seconds": 90.0, "subject": None}
    plan: dict[str, Any] = {"cron": "* * * * *", "time_zone": "UTC", "missed_runs": "once"}
    plan |= {"catch_up_seconds": 3600.0, "job": job}
    due_at = story.log[-1].recorded_at + timedelta(seconds=20)
    says: dict[str, Any] = {"name": "nightly", "plan": plan, "paused": False, "next_run_at": due_at}
    story.then("schedule.created", schedule_id("nightly"), **says)


@breaks("I-18")
def a_bot_that_asks_itself_passes_a_vip_over(story: Story) -> None:
    two_more_bots(story)
    create_order(story, 10_000, kind="VIP")
    story.claim("pending order", "first bot")
    story.go_on(6)
    story.claim("later order", "second bot")
