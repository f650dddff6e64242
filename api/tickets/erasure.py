"""Guests over HTTP, as far as the log knows them: who has a number, and that somebody is erased."""

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
    RawHeaders,
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
    """It stays in the log for ever: say why, and not who."""


class SubjectJSON(TypedDict):
    id: str
    status: Literal["ERASED"]
    erasedAt: str
    reason: str


class SubjectAnswer(TypedDict):
    subject: SubjectJSON


def erase(body: EraseBody, context: RequestContext) -> EraseSubject:
    """Destroy the key of a guest, so that nobody can read their name and number again."""
    if NUMBER.search(body.reason):
        raise unprocessable(
            "schema", "The reason stays in the log for ever: write it without a telephone number."
        )
    return EraseSubject(subject_id=context.id, reason=body.reason, has_key=False)


def erased(subject: Subject) -> SubjectAnswer:
    return {
        "subject": {
            "id": str(subject.id),
            "status": "ERASED",
            "erasedAt": moment(subject.erased_at),
            "reason": subject.reason,
        }
    }


class Erasure(CommandEndpoint[EraseBody, Subject]):
    """Whether there ever was such a guest is known where the keys are kept, and not in the log."""

    async def submit(
        self,
        context: RequestContext,
        command: Command[Subject],
        origin: Origin,
        key: IdempotencyKey | None,
    ) -> tuple[StoredResponse, RawHeaders]:
        assert isinstance(command, EraseSubject)
        has_key = await context.service.guests.has_key(command.subject_id)
        return await super().submit(context, replace(command, has_key=has_key), origin, key)


class FindBody(Body, frozen=True):
    """In a body, because addresses end up in the logs of proxies."""

    restaurant: Slug
    mobile_number: Annotated[str, Meta(min_length=1, max_length=WRITTEN_CHARACTERS_MAX)]


class FoundAnswer(TypedDict):
    subjectId: UUID


def found(subject_id: UUID) -> FoundAnswer:
    return {"subjectId": subject_id}


class SubjectTrace(WriteEndpoint[FindBody]):
    """A guest who wants to be erased has a number to give, and no id."""

    summary = "Find the guest of a restaurant with that mobile number."
    answers = staticmethod(found)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.NOT_FOUND,)

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        asked = self.read(context, body)
        number = normalise_phone_number(
            asked.mobile_number, calling_code=context.settings.calling_code
        )
        subject_id = await context.service.guests.find(restaurant_id(asked.restaurant), number)
        if subject_id is None:
            raise NotFoundError("guest with that number at", asked.restaurant)
        return StoredResponse(HTTPStatus.OK, orjson.dumps(found(subject_id))), []


FIND = SubjectTrace("POST", "/api/subjects/find", takes=FindBody, scope=ADMIN)
ERASE = Erasure(
    "POST", "/api/subjects/{id}/erase", takes=EraseBody, scope=ADMIN, command=erase, shape=erased
)

routes: list[Route] = [FIND.route, ERASE.route]
