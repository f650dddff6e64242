"""Invalid histories of tickets."""

from base64 import b64encode
from typing import Any

from uuid_utils.compat import uuid7

from tests.audit.histories.in_memory import Story, data_of
from tests.audit.histories.mutate import breaks
from tests.audit.histories.valid_tickets import SEALED, guest, pseudonym


def join(story: Story, **changes: Any) -> None:
    """Adds a guest on both sides, with one fault."""
    last = data_of(story.log[story.last_of("greedy ticket")])
    ticket_id = uuid7()
    number = int(last["sequence"]) + 1
    new = {
        **last,
        "ticket_id": ticket_id,
        "sequence": number,
        "place": int(last["place"]) + 1,
        "token_number": f"RT-{number:06d}",
        "position_at_join": int(last["position_at_join"]) + 1,
        "subject_id": uuid7(),
        "pseudonym": pseudonym(5000),
        **changes,
    }
    del new["at"]
    fields = {name: new[name] for name in ("ticket_id", "place", "sequence", "service_day")}
    entry = story.then("restaurant.guest_joined", "restaurant", **fields)
    story.then("ticket.created", ticket_id, command_id=entry.command_id, seconds=0, **new)


def call(story: Story, name: str, **changes: Any) -> None:
    created = data_of(story.log[story.find("ticket.created", ticket_id=str(story.cast[name]))])
    fields = {name: created[name] for name in ("ticket_id", "place", "token_number")}
    entry = story.then("restaurant.guest_called", "restaurant", **fields, desk=None)
    says = {"round": 1, "due_at": None, "desk": None, "out_of_turn": False, **changes}
    story.then("ticket.called", name, command_id=entry.command_id, seconds=0, **says)


@breaks("I-29")
def a_number_is_left_out(story: Story) -> None:
    number = int(data_of(story.log[story.last_of("greedy ticket")])["sequence"]) + 2
    join(story, sequence=number, token_number=f"RT-{number:06d}")


@breaks("I-29")
def a_number_is_given_twice(story: Story) -> None:
    number = int(data_of(story.log[story.last_of("greedy ticket")])["sequence"])
    join(story, sequence=number, token_number=f"RT-{number:06d}")


@breaks("I-29")
def a_token_shows_another_number(story: Story) -> None:
    join(story, token_number="RT-000001")


@breaks("I-29")
def a_place_is_given_that_the_restaurant_knows_nothing_of(story: Story) -> None:
    story.drop(story.find("restaurant.guest_joined", nth=-1))


@breaks("I-30")
def a_guest_is_called_twice(story: Story) -> None:
    call(story, "called ticket", round=2)


@breaks("I-30")
def a_guest_is_called_before_one_who_came_earlier(story: Story) -> None:
    call(story, "later ticket")


@breaks("I-30")
def a_guest_who_has_a_table_is_called(story: Story) -> None:
    call(story, "seated ticket", round=2)


@breaks("I-30")
def a_round_is_left_out(story: Story) -> None:
    call(story, "waiting ticket", round=2)


@breaks("I-30")
def a_guest_who_cancelled_is_seated(story: Story) -> None:
    story.then("ticket.seated", "cancelled ticket")


@breaks("I-31")
def a_fourth_ticket_within_the_hour(story: Story) -> None:
    join(story, pseudonym=pseudonym(999), subject_id=guest(999).subject_id)


@breaks("I-31")
def a_second_ticket_where_one_is_allowed(story: Story) -> None:
    join(story, pseudonym=pseudonym(999), hourly_max=1)


@breaks("I-31")
def two_guests_have_one_number(story: Story) -> None:
    index = story.find("ticket.created", pseudonym=pseudonym(999))
    for n in range(index - 20, index):
        if story.log[n].topic == "ticket.created":
            story.say(n, pseudonym=pseudonym(999))


@breaks("I-32")
def a_guest_is_told_a_better_position(story: Story) -> None:
    join(story, position_at_join=1)


@breaks("I-32")
def a_guest_is_told_a_worse_position(story: Story) -> None:
    join(story, position_at_join=99)


@breaks("I-32")
def the_restaurant_misses_that_a_guest_left(story: Story) -> None:
    story.then("ticket.cancelled", "waiting ticket", reason=None)


@breaks("I-32")
def the_restaurant_records_a_call_without_a_ticket(story: Story) -> None:
    story.then(
        "restaurant.guest_called",
        "restaurant",
        ticket_id=story.cast["waiting ticket"],
        place=1,
        token_number="RT-000001",
        desk=None,
    )


@breaks("I-42")
def a_guest_is_encoded_and_not_sealed(story: Story) -> None:
    plain = b'{"name": "Ada Lovelace", "mobileNumber": "0170 1234567"}'
    join(story, sealed=b64encode(plain).decode())


@breaks("I-42")
def a_number_stands_in_a_reason(story: Story) -> None:
    story.then("ticket.cancelled", "waiting ticket", reason="call back +491701234567")


@breaks("I-42")
def a_number_is_its_own_pseudonym(story: Story) -> None:
    join(story, pseudonym="491701234567")


@breaks("I-42")
def the_encrypted_data_is_truncated(story: Story) -> None:
    join(story, sealed=SEALED[:24])


@breaks("I-43")
def a_guest_who_was_erased_joins_again(story: Story) -> None:
    join(story, subject_id=story.cast["erased subject"])


@breaks("I-43")
def a_guest_is_erased_twice(story: Story) -> None:
    subject = story.cast["erased subject"]
    story.then("subject.erased", "erased subject", subject_id=subject, reason="again")


@breaks("I-43")
def an_erasure_names_another_guest(story: Story) -> None:
    story.say(story.find("subject.erased"), subject_id=guest(2).subject_id)
