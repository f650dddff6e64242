"""What can be decided about guests over HTTP: that they are erased."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta
from msgspec.structs import replace
from starlette.routing import Route

from api.commands import Body, Call, RawHeaders, Write
from api.happenings import NUMBER
from api.requests import unprocessable
from api.shapes import moment
from domain.desk import Command
from domain.subject import EraseSubject, Subject
from eventlog.idempotency import IdempotencyKey
from eventlog.origin import Origin, StoredAnswer

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


def erase(body: EraseBody, call: Call) -> EraseSubject:
    """Destroy the key of a guest, so that nobody can read their name and number again."""
    if NUMBER.search(body.reason):
        raise unprocessable(
            "schema", "The reason stays in the log for ever: write it without a telephone number."
        )
    return EraseSubject(subject_id=call.id, reason=body.reason, has_key=False)


def erased(subject: Subject) -> SubjectAnswer:
    return {
        "subject": {
            "id": str(subject.id),
            "status": "ERASED",
            "erasedAt": moment(subject.erased_at),
            "reason": subject.reason,
        }
    }


class Erasure(Write[EraseBody, Subject]):
    """Whether there ever was such a guest is known where the keys are kept, and not in the log."""

    async def hand_over(
        self, call: Call, command: Command[Subject], origin: Origin, key: IdempotencyKey | None
    ) -> tuple[StoredAnswer, RawHeaders]:
        assert isinstance(command, EraseSubject)
        has_key = await call.service.guests.has_key(command.subject_id)
        return await super().hand_over(call, replace(command, has_key=has_key), origin, key)


ERASE = Erasure("POST", "/api/subjects/{id}/erase", takes=EraseBody, command=erase, shape=erased)

routes: list[Route] = [ERASE.route]
