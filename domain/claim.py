"""A claim: the grant of one order to one bot, or of one job to one worker, until a deadline."""

from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.errors import ClaimLostError


class Claim(Struct, frozen=True, gc=False):
    """The id is the fencing token: a report with an older one is stale. The lease ends at
    `until`."""

    id: UUID
    started_at: datetime
    until: datetime


C = TypeVar("C", bound=Claim, covariant=True)


class Claimable(Protocol[C]):
    @property
    def id(self) -> UUID: ...
    @property
    def claim(self) -> C | None: ...


def require_claim(kind: str, state: Claimable[C], claim_id: UUID) -> C:
    claim = state.claim
    # `UUID.__eq__` is written in Python; comparing integers is faster.
    if claim is None or claim.id.int != claim_id.int:
        raise ClaimLostError(kind, state.id, claim_id)
    return claim
