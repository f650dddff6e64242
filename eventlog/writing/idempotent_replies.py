"""Idempotency lookup and storage for one batch."""

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
        self._lookups: tuple[PendingResult, PendingResult] | None = None
        self._known: dict[Scope, KnownKey] = {}
        self._spent: dict[Scope, UUID] = {}
        self._new: list[KnownKey] = []

    def find(self, pipeline: Pipeline, keys: Sequence[Scope]) -> None:
        if keys:
            # Spent keys are read last, so that a key which expires in between is found there.
            wanted = scopes(keys)
            self._lookups = (
                pipeline.add(FIND_KEYS, **wanted),
                pipeline.add(FIND_SPENT_KEYS, **wanted),
            )

    def load(self) -> None:
        if self._lookups is not None:
            known, spent = self._lookups
            self._known = {one.scope: one for one in map(known_key, known.rows())}
            self._spent = {(row[0], row[1]): row[2] for row in spent.rows()}

    def reply(self, key: IdempotencyKey) -> Receipt | Exception | None:
        """Returns the stored receipt or the error for a used key; None for a new key."""
        known = self._known.get(key.scope)
        if known is None:
            spent = self._spent.get(key.scope)
            return None if spent is None else IdempotencyKeyExpiredError(spent)
        if known.fingerprint != key.fingerprint:
            return IdempotencyKeyReusedError(key.key)
        return Receipt(None, known.command_id, known.position, known.answer)

    def store(self, submission: SubmittedCommand, key: IdempotencyKey, answer: Any) -> None:
        last = submission.events[-1] if submission.events else None
        stored = KnownKey(
            scope=key.scope,
            fingerprint=key.fingerprint,
            answer=key.render(answer),
            command_id=submission.origin.command_id,
            last_event=(last.originator_id, last.originator_version) if last else None,
        )
        self._known[key.scope] = stored
        self._new.append(stored)

    def write(self, pipeline: Pipeline, *, retried: Collection[UUID]) -> None:
        """Inserts the new keys, except those of commands that will be retried."""
        new = [key for key in self._new if key.command_id not in retried]
        if new:
            new.sort(key=lambda key: key.scope)
            pipeline.add(INSERT_KEYS, **columns(new))
