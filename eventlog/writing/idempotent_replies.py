"""The idempotency keys of one batch: what was answered under them before, and what is kept now."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from daybook.eventlog.errors import IdempotencyKeyExpiredError, IdempotencyKeyReusedError
from daybook.eventlog.origin import Receipt
from daybook.eventlog.postgres.pipeline import PendingResult, Pipeline
from daybook.eventlog.writing.batch_needs import SubmittedCommand
from daybook.eventlog.writing.idempotency import (
    FIND_KEYS,
    FIND_SPENT_KEYS,
    INSERT_KEYS,
    IdempotencyKey,
    KnownKey,
    Scope,
    columns,
    known_key,
    scopes,
)


class IdempotentReplies:
    def __init__(self) -> None:
        self._asked: tuple[PendingResult, PendingResult] | None = None
        self._known: dict[Scope, KnownKey] = {}
        self._spent: dict[Scope, UUID] = {}
        self._new: list[KnownKey] = []

    def find(self, pipeline: Pipeline, keys: Sequence[Scope]) -> None:
        if keys:
            # The spent ones after the known ones: what is forgotten in between is found there.
            asked = scopes(keys)
            self._asked = (
                pipeline.add(FIND_KEYS, **asked),
                pipeline.add(FIND_SPENT_KEYS, **asked),
            )

    def load(self) -> None:
        if self._asked is not None:
            known, spent = self._asked
            self._known = {one.scope: one for one in map(known_key, known.rows())}
            self._spent = {(row[0], row[1]): row[2] for row in spent.rows()}

    def reply(self, key: IdempotencyKey) -> Receipt | Exception | None:
        """What is told to whoever shows this key; None for the first to do so."""
        known = self._known.get(key.scope)
        if known is None:
            spent = self._spent.get(key.scope)
            return None if spent is None else IdempotencyKeyExpiredError(spent)
        if known.fingerprint != key.fingerprint:
            return IdempotencyKeyReusedError(key.key)
        return Receipt(None, known.command_id, known.position, known.answer)

    def store(self, submission: SubmittedCommand, key: IdempotencyKey, answer: Any) -> None:
        last = submission.events[-1] if submission.events else None
        kept = KnownKey(
            scope=key.scope,
            fingerprint=key.fingerprint,
            answer=key.render(answer),
            command_id=submission.origin.command_id,
            last_event=(last.originator_id, last.originator_version) if last else None,
        )
        self._known[key.scope] = kept
        self._new.append(kept)

    def write(self, pipeline: Pipeline, *, unkept: Collection[UUID]) -> None:
        """All but those of the commands that decide anew."""
        new = [key for key in self._new if key.command_id not in unkept]
        if new:
            new.sort(key=lambda key: key.scope)
            pipeline.add(INSERT_KEYS, **columns(new))
