"""What the desk does with tickets over HTTP: calling, seating, and everything that goes wrong.

Answers are for the staff, with the guest's name and number. Those are added when an answer is sent
and are in no answer that is kept: what is sent again with an Idempotency-Key shows them as they can
be read then.
"""

import time
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypedDict, TypeVar
from uuid import UUID

import orjson
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    CommandEndpoint,
    EmptyBody,
    RawHeaders,
    RequestContext,
    receipt_headers,
    stored_problem,
)
from daybook.api.http.problems import KNOWN_ERRORS, BadInputError, problem_of
from daybook.api.keys.access import PUBLIC, STAFF
from daybook.api.runtime.service import Service
from daybook.api.telemetry.structured_log import log_event
from daybook.api.tickets.queries import TicketAnswer
from daybook.api.tickets.responses import StaffTicketJSON, served_json, staff_json, wait_json
from daybook.api.tickets.restaurants import PLAIN_PATTERN, Slug, slug_of
from daybook.domain.command import Command
from daybook.domain.errors import NotFoundError, Refusal
from daybook.domain.tickets.commands import (
    CallNext,
    CallTicket,
    CancelTicket,
    MarkNoShow,
    RecallTicket,
    ReturnTicket,
    SeatTicket,
    TicketResult,
    TransferTicket,
)
from daybook.domain.tickets.restaurant import restaurant_id
from daybook.domain.tickets.ticket import ID_VERSION, TicketStatus
from daybook.eventlog.errors import NoGuestKeyError, UnavailableError
from daybook.eventlog.origin import Origin, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey
from daybook.projections.tickets.ticket_list import one_ticket

DeskText = Annotated[str, Meta(min_length=1, max_length=40, pattern=PLAIN_PATTERN)]
TokenText = Annotated[str, Meta(min_length=1, max_length=40)]
ReasonText = Annotated[str, Meta(min_length=1, max_length=200, pattern=PLAIN_PATTERN)]

B = TypeVar("B", bound=Body)


class NextCall(Body, frozen=True):
    """With `afterToken` somebody is called only if that one was called last; null stands for
    nobody yet. A key makes it safe to send again, too."""

    after_token: TokenText | UnsetType | None = UNSET
    desk: DeskText | None = None


class CallOf(Body, frozen=True):
    desk: DeskText | None = None


class Cancellation(Body, frozen=True):
    reason: ReasonText | None = None


class Transfer(Body, frozen=True):
    to_restaurant: Slug


class StaffTicketAnswer(TypedDict):
    ticket: StaffTicketJSON


def call_next(body: NextCall, context: RequestContext) -> CallNext:
    """Call whoever is first in the line; 204 when nobody waits."""
    return CallNext(slug=slug_of(context), desk=body.desk, after_token=body.after_token)


def call_one(body: CallOf, context: RequestContext) -> CallTicket:
    """Call this guest, out of turn."""
    return CallTicket(slug=slug_of(context), ticket_id=ticket_id_of(context), desk=body.desk)


def recall(body: CallOf, context: RequestContext) -> RecallTicket:
    """Call a guest once more who was called and has not come."""
    return RecallTicket(slug=slug_of(context), ticket_id=ticket_id_of(context), desk=body.desk)


def seat(_: EmptyBody, context: RequestContext) -> SeatTicket:
    """The guest has a table."""
    return SeatTicket(slug=slug_of(context), ticket_id=ticket_id_of(context))


def miss(_: EmptyBody, context: RequestContext) -> MarkNoShow:
    """The guest was called and did not show up."""
    return MarkNoShow(slug=slug_of(context), ticket_id=ticket_id_of(context))


def return_(_: EmptyBody, context: RequestContext) -> ReturnTicket:
    """Back into the line, to the guest's old place."""
    return ReturnTicket(slug=slug_of(context), ticket_id=ticket_id_of(context))


def cancel(body: Cancellation, context: RequestContext) -> CancelTicket:
    """The guest does not want to wait any longer."""
    return CancelTicket(slug=slug_of(context), ticket_id=ticket_id_of(context), reason=body.reason)


def transfer(body: Transfer, context: RequestContext) -> TransferTicket:
    """To the end of another restaurant's line, under a token of that one."""
    return TransferTicket(
        slug=slug_of(context), ticket_id=ticket_id_of(context), to_slug=body.to_restaurant
    )


def ticket_id_of(context: RequestContext) -> UUID:
    ticket_id = context.id
    if ticket_id.version != ID_VERSION:
        raise BadInputError(
            HTTPStatus.NOT_FOUND, NotFoundError.code, str(NotFoundError("ticket", ticket_id))
        )
    return ticket_id


def shown(served: TicketResult) -> StaffTicketAnswer:
    """As it is kept, without the guest: who that is, is added when it is sent."""
    return {"ticket": staff_json(served_json(served), served.ticket.guest.subject_id, None)}


def shown_to_all(served: TicketResult) -> TicketAnswer:
    """For guests, who cancel by themselves."""
    return {"ticket": served_json(served)}


class DeskWrite(CommandEndpoint[B, Any], Generic[B]):
    """One command about a restaurant's line."""

    @property
    def is_for_staff(self) -> bool:
        return self.answers is shown

    def key(self, context: RequestContext, value: B) -> IdempotencyKey | None:
        """Of this restaurant alone: another's key leads nowhere, whatever it is."""
        key = super().key(context, value)
        if key is None:
            return None
        # With the space, it is a key that no client can send.
        return replace(key, key=f"{key.key} {restaurant_id(slug_of(context))}")

    async def submit(
        self,
        context: RequestContext,
        command: Command[Any],
        origin: Origin,
        key: IdempotencyKey | None,
    ) -> tuple[StoredResponse, RawHeaders]:
        began = time.monotonic()
        try:
            receipt = await context.submit(command, origin, key)
            if receipt.replayed_response is None and receipt.result is not None:
                _tell(receipt.result, time.monotonic() - began)
            answer = receipt.replayed_response or self.render(receipt.result)
            if self.is_for_staff:
                answer = await _with_guest(context.service, answer, receipt.result)
            return answer, receipt_headers(receipt)
        except KNOWN_ERRORS as error:
            headers = [(b"daybook-command-id", str(origin.command_id).encode())]
            return self.refused(error, headers)

    def render(self, outcome: TicketResult | Refusal | None) -> StoredResponse:
        if isinstance(outcome, Refusal):
            return stored_problem(problem_of(outcome))
        if outcome is None:
            return StoredResponse(HTTPStatus.NO_CONTENT, b"")
        return StoredResponse(self.status, orjson.dumps(self.answers(outcome)))


class NextWrite(DeskWrite[NextCall]):
    also = (HTTPStatus.NO_CONTENT,)


async def _with_guest(
    service: Service, answer: StoredResponse, fresh: TicketResult | None
) -> StoredResponse:
    """What only the staff may see, and what only the line knows: where a guest stands who came
    back. What was decided is told even if that cannot be read: whoever is told of a failure
    instead would call the next guest."""
    if answer.status != HTTPStatus.OK:
        return answer
    told = orjson.loads(answer.body)["ticket"]
    with suppress(UnavailableError, NoGuestKeyError):
        if fresh is not None and told["status"] != TicketStatus.WAITING:
            guest = fresh.ticket.guest
        else:
            standing = await service.write_unlogged(
                lambda reader: one_ticket(reader, UUID(told["id"]))
            )
            assert standing is not None, "what was decided about is there"
            if standing.wait is not None and told["status"] == TicketStatus.WAITING:
                told |= {"position": standing.position, "estimatedWait": wait_json(standing.wait)}
            guest = standing.ticket.guest
        (opened,) = await service.guests.decrypt_each([(guest.subject_id, guest.sealed)])
        told["guest"] = opened and {"name": opened.name, "mobileNumber": opened.mobile_number}
    return StoredResponse(answer.status, orjson.dumps({"ticket": told}))


def _tell(served: TicketResult, seconds: float) -> None:
    ticket, was = served.ticket, served.was
    about = {
        "restaurantId": ticket.restaurant_id,
        "entryId": ticket.id,
        "tokenNumber": ticket.token.number,
    }
    if ticket.status is TicketStatus.CALLED:
        duration = round(seconds * 1000, 1)
        log_event("queue.called", **about, desk=ticket.desk, duration=duration)
    if was is not ticket.status:
        log_event("queue.status_changed", **about, **{"from": was, "to": ticket.status})


LINE = "/api/restaurants/{slug}"
TICKET = f"{LINE}/tickets/{{id}}"

CALL_NEXT = NextWrite(
    "POST", f"{LINE}/call-next", takes=NextCall, scope=STAFF, command=call_next, shape=shown
)
CALL = DeskWrite("POST", f"{TICKET}/call", takes=CallOf, scope=STAFF, command=call_one, shape=shown)
RECALL = DeskWrite(
    "POST", f"{TICKET}/recall", takes=CallOf, scope=STAFF, command=recall, shape=shown
)
SEAT = DeskWrite("POST", f"{TICKET}/seat", takes=EmptyBody, scope=STAFF, command=seat, shape=shown)
NO_SHOW = DeskWrite(
    "POST", f"{TICKET}/no-show", takes=EmptyBody, scope=STAFF, command=miss, shape=shown
)
RETURN = DeskWrite(
    "POST", f"{TICKET}/return", takes=EmptyBody, scope=STAFF, command=return_, shape=shown
)
CANCEL = DeskWrite(
    "POST", f"{TICKET}/cancel", takes=Cancellation, scope=PUBLIC, command=cancel, shape=shown_to_all
)
TRANSFER = DeskWrite(
    "POST", f"{TICKET}/transfer", takes=Transfer, scope=STAFF, command=transfer, shape=shown
)

routes: list[Route] = [
    write.route for write in (CALL_NEXT, CALL, RECALL, SEAT, NO_SHOW, RETURN, CANCEL, TRANSFER)
]
