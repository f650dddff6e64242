"""Data subjects: find a guest by mobile number, erase a guest's personal data."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Literal, TypedDict
from uuid import UUID

import orjson
from msgspec import Meta
from msgspec.structs import replace
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    CommandEndpoint,
    Reply,
    RequestContext,
    WriteEndpoint,
)
from daybook.api.http.phone_numbers import WRITTEN_CHARACTERS_MAX, normalise_phone_number
from daybook.api.http.request_reader import unprocessable
from daybook.api.http.timestamps import moment
from daybook.api.keys.access import ADMIN
from daybook.api.telemetry.structured_log import NUMBER
from daybook.api.tickets.restaurants import Slug
from daybook.domain.command import Command
from daybook.domain.errors import NotFoundError
from daybook.domain.tickets.data_subject import EraseSubject, Subject
from daybook.domain.tickets.restaurant import restaurant_id
from daybook.eventlog.origin import Origin, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey

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


def erase(body: EraseBody, context: RequestContext) -> EraseSubject:
    """Destroy a guest's encryption key, which makes name and number unreadable for ever."""
    if NUMBER.search(body.reason):
        raise unprocessable(
            "schema", "The reason is stored for ever and must not contain a telephone number."
        )
    return EraseSubject(subject_id=context.id, reason=body.reason, has_key=False)


def subject_json(subject: Subject) -> SubjectAnswer:
    return {
        "subject": {
            "id": str(subject.id),
            "status": "ERASED",
            "erasedAt": moment(subject.erased_at),
            "reason": subject.reason,
        }
    }


class EraseEndpoint(CommandEndpoint[EraseBody, Subject]):
    """Checks that the guest exists in the key vault: the log does not know all guests."""

    async def submit(
        self,
        context: RequestContext,
        command: Command[Subject],
        origin: Origin,
        key: IdempotencyKey | None,
    ) -> Reply:
        assert isinstance(command, EraseSubject)
        has_key = await context.service.guests.has_key(command.subject_id)
        return await super().submit(context, replace(command, has_key=has_key), origin, key)


class FindBody(Body, frozen=True):
    """In the body, because proxies log URLs."""

    restaurant: Slug
    mobile_number: Annotated[str, Meta(min_length=1, max_length=WRITTEN_CHARACTERS_MAX)]


class FoundAnswer(TypedDict):
    subjectId: UUID


def found_subject_json(subject_id: UUID) -> FoundAnswer:
    return {"subjectId": subject_id}


class FindSubjectEndpoint(WriteEndpoint[FindBody]):
    summary = "Find the guest of a restaurant by mobile number."
    answers = staticmethod(found_subject_json)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.NOT_FOUND,)

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        request = self.read(context, body)
        number = normalise_phone_number(
            request.mobile_number, calling_code=context.settings.calling_code
        )
        subject_id = await context.service.guests.find(restaurant_id(request.restaurant), number)
        if subject_id is None:
            raise NotFoundError("guest with that number at", request.restaurant)
        return StoredResponse(HTTPStatus.OK, orjson.dumps(found_subject_json(subject_id))), []


FIND = FindSubjectEndpoint("POST", "/api/subjects/find", takes=FindBody, scope=ADMIN)
ERASE = EraseEndpoint(
    "POST", "/api/subjects/{id}/erase", scope=ADMIN, command=erase, shape=subject_json
)

routes: list[Route] = [FIND.route, ERASE.route]
