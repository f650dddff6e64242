"""Registry of invalid histories: functions that corrupt the valid one, with the invariants they
break."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from tests.audit.histories.in_memory import Story, claim_of

Spoil = Callable[[Story], None]
SPOILT: list[tuple[str, Spoil]] = []
"""Complete once the modules with the histories are imported."""


def breaks(*ids: str) -> Callable[[Spoil], Spoil]:
    def register(spoil: Spoil) -> Spoil:
        SPOILT.extend((one, spoil) for one in ids)
        return spoil

    return register


def claim_id_of(story: Story, name: str = "claimed order") -> UUID:
    return claim_of(story.log[story.last_of(name)])


def end_both(
    story: Story, deed: str, *, actor: str = "open", after: float = 0, **says: Any
) -> None:
    """Ends the open claim on both sides."""
    claim_id, order_id = claim_id_of(story), story.cast["claimed order"]
    on_bot = {key: value for key, value in says.items() if key in ("error", "reason")}
    entry = story.then(
        f"bot.{deed}",
        "busy bot",
        actor=actor,
        seconds=after,
        claim_id=claim_id,
        order_id=order_id,
        **on_bot,
    )
    story.then(
        f"order.{deed}",
        "claimed order",
        actor=actor,
        seconds=0,
        command_id=entry.command_id,
        claim_id=claim_id,
        **says,
    )


def create_order(story: Story, number: int, *, kind: str = "NORMAL", after: float = 0.001) -> None:
    order_id = uuid7()
    story.then(
        "order.created",
        order_id,
        seconds=after,
        order_id=order_id,
        number=number,
        kind=kind,
        attempts_max=3,
    )


def claim_job(story: Story, name: str, attempt: int = 1, claim_id: UUID | None = None) -> None:
    until = story.log[-1].recorded_at + timedelta(seconds=90)
    story.then(
        "job.claimed",
        name,
        claim_id=claim_id or uuid7(),
        worker="w1",
        lease_until=until,
        attempt=attempt,
    )


def fail_job(story: Story, name: str = "claimed job", *, actor: str = "open", **says: Any) -> None:
    usual = {"error": "busy", "reason": "error", "retryable": True, "retry_at": None}
    claim_id = claim_id_of(story, name)
    story.then("job.failed", name, actor=actor, claim_id=claim_id, **{**usual, **says})


def create_keyed(story: Story, job_id: UUID, key: str = "k", scope: str = "forever") -> None:
    story.then(
        "job.created",
        job_id,
        job_id=job_id,
        number=5000,
        queue="print",
        type="send",
        payload=None,
        priority=5,
        attempts_max=3,
        lease_seconds=90.0,
        unique_key=key,
        unique_scope=scope,
    )
