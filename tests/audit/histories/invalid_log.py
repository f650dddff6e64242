"""Invalid histories of the log itself."""

from datetime import timedelta
from typing import Any

from msgspec import Raw
from uuid_utils.compat import uuid7

from tests.audit.histories.in_memory import COMPLETIONS, DISPATCH, LEASES, RECOVERY, Story, data_of
from tests.audit.histories.mutate import breaks


@breaks("I-02")
def a_version_is_missing(story: Story) -> None:
    story.drop(story.find("order.claimed"))


@breaks("I-02")
def a_version_comes_twice(story: Story) -> None:
    index = story.find("job.claimed")
    story.log.insert(index + 1, story.log[index])


@breaks("I-02")
def an_aggregate_begins_at_two(story: Story) -> None:
    story.drop(story.find("bot.created"))


@breaks("I-02")
def a_finished_aggregate_begins_again(story: Story) -> None:
    begun = story.log[story.find("order.created")]
    story.then("order.created", begun.aggregate, **data_of(begun))
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


@breaks("I-04", "I-40")
def a_topic_is_unknown(story: Story) -> None:
    story.edit(story.find("order.completed"), topic="order.eaten")


@breaks("I-04", "I-40")
def an_event_lacks_a_field(story: Story) -> None:
    story.edit(story.find("job.claimed"), data=Raw(b'{"at":"2026-01-01T00:00:00Z"}'))


@breaks("I-04")
def an_event_tells_of_another_order(story: Story) -> None:
    story.say(story.find("order.created"), order_id=uuid7())


@breaks("I-04")
def an_order_gets_the_event_of_a_bot(story: Story) -> None:
    story.then("bot.deleted", "pending order")


@breaks("I-04", "I-40")
def the_first_event_is_no_beginning(story: Story) -> None:
    story.then("order.deleted", uuid7())


@breaks("I-05")
def a_command_id_is_used_again_later(story: Story) -> None:
    story.then("order.deleted", "pending order", command_id=story.log[0].command_id)


@breaks("I-05")
def a_command_has_two_actors(story: Story) -> None:
    index = story.find("order.completed", via="report")
    story.edit(index, actor="somebody else")


@breaks("I-05")
def a_command_was_decided_at_two_times(story: Story) -> None:
    index = story.find("order.claimed")
    story.say(index, at=story.log[index].recorded_at + timedelta(seconds=1))


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
def an_enqueuing_program_completes_a_job(story: Story) -> None:
    story.edit(story.find("job.completed"), actor="enqueue")


@breaks("I-07")
def a_client_lets_a_lease_expire(story: Story) -> None:
    story.edit(story.find("job.failed", reason="lease_expired"), actor="open")


@breaks("I-07")
def a_bot_s_key_creates_an_order(story: Story) -> None:
    story.edit(story.find("order.created"), actor="bot:k3v9q1m8x2ab")


@breaks("I-07")
def a_client_s_key_creates_an_order_of_a_vip(story: Story) -> None:
    story.edit(story.find("order.created", kind="VIP"), actor="client:k3v9q1m8x2ab")


@breaks("I-07")
def an_auditor_s_key_changes_something(story: Story) -> None:
    story.edit(story.find("job.claimed"), actor="auditor:k3v9q1m8x2ab")


@breaks("I-35")
def completions_act_twice_on_one_claim(story: Story) -> None:
    done = story.log[story.find("bot.completed")]
    for _ in range(2):
        story.then("bot.completed", "busy bot", actor=COMPLETIONS, **data_of(done))


@breaks("I-35")
def leases_act_twice_on_one_claim(story: Story) -> None:
    expired = story.log[story.find("job.failed", reason="lease_expired")]
    story.then("job.failed", "claimed job", actor=LEASES, **data_of(expired))


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


@breaks("I-41")
def an_operator_gives_an_empty_reason(story: Story) -> None:
    story.say(story.find("order.requeued"), because="")


@breaks("I-41")
def an_order_is_restored_that_was_there(story: Story) -> None:
    story.then("order.restored", "pending order")


@breaks("I-41")
def a_bot_is_released_that_held_nothing(story: Story) -> None:
    says: dict[str, Any] = {"claim_id": uuid7(), "order_id": uuid7(), "reason": "stopped"}
    story.then("bot.released", "idle bot", **says)
