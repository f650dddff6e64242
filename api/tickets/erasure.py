"""Data subjects: find a guest by mobile number, erase a guest's personal data."""

from http import HTTPStatus
from typing import Annotated, Literal, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.routing import Route

from daybook.api.endpoints.command import Body, RequestContext, WriteEndpoint
from daybook.api.http.phone_numbers import WRITTEN_CHARACTERS_MAX, normalise_phone_number
from daybook.api.http.request_reader import unprocessable
from daybook.api.http.timestamps import moment
from daybook.api.keys.access import ADMIN
from daybook.api.telemetry.structured_log import NUMBER
from daybook.api.tickets.restaurants import Slug
from daybook.domain.errors import NotFoundError
from daybook.domain.tickets.data_subject import EraseSubject, Subject
from daybook.domain.tickets.restaurant import restaurant_id

REASON_CHARACTERS_MAX = 200


class EraseBody(Body, frozen=True):
    reason: Annotated[str, Meta(min_length=1, max_length=REASON_CHARACTERS_MAX)]
    """Stored in the log for ever: it must not identify the guest."""


class SubjectJSON(TypedDict):
    id: str
    status: Literal["ERASED"]
    erasedAt: str
    reason: str


class SubjectAnswer(TypedDict):
    subject: SubjectJSON


async def erase(body: EraseBody, context: RequestContext) -> EraseSubject:
    """Destroy a guest's encryption key, which makes name and number unreadable for ever."""
    if NUMBER.search(body.reason):
        raise unprocessable(
            "schema", "The reason is stored for ever and must not contain a telephone number."
        )
    # The log does not know all guests; the key vault does.
    has_key = await context.service.guests.has_key(context.id)
    return EraseSubject(subject_id=context.id, reason=body.reason, has_key=has_key)


def subject_json(subject: Subject) -> SubjectAnswer:
    return {
        "subject": {
            "id": str(subject.id),
            "status": "ERASED",
            "erasedAt": moment(subject.erased_at),
            "reason": subject.reason,
        }
    }


class FindBody(Body, frozen=True):
    """In the body, because proxies log URLs."""

    restaurant: Slug
    mobile_number: Annotated[str, Meta(min_length=1, max_length=WRITTEN_CHARACTERS_MAX)]


class FoundAnswer(TypedDict):
    subjectId: UUID


async def find_subject(body: FindBody, context: RequestContext) -> FoundAnswer:
    """Find the guest of a restaurant by mobile number."""
    number = normalise_phone_number(body.mobile_number, calling_code=context.settings.calling_code)
    subject_id = await context.service.guests.find(restaurant_id(body.restaurant), number)
    if subject_id is None:
        raise NotFoundError("guest with that number at", body.restaurant)
    return {"subjectId": subject_id}


FIND = WriteEndpoint(
    "POST",
    "/api/subjects/find",
    scope=ADMIN,
    answer=find_subject,
    headers={},
    problems=(HTTPStatus.NOT_FOUND,),
)
ERASE = WriteEndpoint(
    "POST", "/api/subjects/{id}/erase", scope=ADMIN, command=erase, shape=subject_json
)

routes: list[Route] = [FIND.route, ERASE.route]
