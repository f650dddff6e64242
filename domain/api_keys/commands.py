"""Commands that issue, rotate and revoke API keys."""

from datetime import datetime

from msgspec import UNSET, Struct, UnsetType

from daybook.domain.api_keys import key as keys
from daybook.domain.api_keys.key import KEY, Binding, Key, key_id
from daybook.domain.command import Lock, Needs, UnitOfWork
from daybook.domain.errors import ApiKeyNameTakenError, NotFoundError


class KeyCommand(Struct, frozen=True, kw_only=True, gc=False):
    name: str

    @property
    def needs(self) -> Needs:
        return [Lock(KEY, [key_id(self.name)])]


class IssueKey(KeyCommand, frozen=True, kw_only=True, gc=False):
    holder: str
    scopes: tuple[str, ...]
    digest: str
    reason: str | None = None
    binding: Binding = Binding()
    expires_at: datetime | None = None

    def decide(self, work: UnitOfWork) -> Key:
        if work.get(KEY, key_id(self.name)) is not None:
            raise ApiKeyNameTakenError(self.name)
        issued = keys.issue(
            name=self.name,
            holder=self.holder,
            scopes=self.scopes,
            binding=self.binding,
            digest=self.digest,
            reason=self.reason,
            expires_at=self.expires_at,
            now=work.now,
        )
        return work.record(KEY, key_id(self.name), issued)


class RotateKey(KeyCommand, frozen=True, kw_only=True, gc=False):
    """Replaces the secret; the previous one stays valid for `overlap_seconds`."""

    digest: str
    reason: str | None = None
    overlap_seconds: float
    expires_at: datetime | UnsetType | None = UNSET  # Unchanged if unset

    def decide(self, work: UnitOfWork) -> Key:
        key = _key(work, self.name)
        expires_at = key.expires_at if isinstance(self.expires_at, UnsetType) else self.expires_at
        rotated = keys.rotate(
            key,
            digest=self.digest,
            earlier_until=keys.earlier_until(work.now, self.overlap_seconds),
            expires_at=expires_at,
            reason=self.reason,
            now=work.now,
        )
        return work.record(KEY, key.id, rotated)


class RevokeKey(KeyCommand, frozen=True, kw_only=True, gc=False):
    reason: str

    def decide(self, work: UnitOfWork) -> Key:
        key = _key(work, self.name)
        for event in keys.revoke(key, reason=self.reason, now=work.now):
            key = work.record(KEY, key.id, event)
        return key


def _key(work: UnitOfWork, name: str) -> Key:
    key = work.get(KEY, key_id(name))
    if key is None:
        raise NotFoundError("key", name)
    return key
