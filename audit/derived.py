"""What is derived from the log: tables equal its fold, followers skip nothing, nobody is late."""

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from audit.invariant import Case, Invariant
from audit.kitchen import ORDER_ENDS
from audit.service import Cursor
from audit.world import Step
from domain.job import Job
from domain.order import Order

# What comes out must not depend on the size of the batches.
BATCHES = (2000, 701)
LAG_SECONDS_MAX = timedelta(seconds=5)
# How long a scheduler outside is waited for, and how long a sweep may take.
GRACE_SECONDS, SWEEP_SECONDS = timedelta(seconds=5), timedelta(seconds=1)


class Tables(Invariant):
    id = "I-33"
    statement = "Every table equals the fold of the log up to its cursor."

    def end(self) -> None:
        service = self.case.service
        if service is None:
            return
        self.seen = True
        live, found = self.case.world.live, 0
        for row in service.rows():
            found += 1
            if not _are_equal(row, self.case.world.get(row.id)):
                self.accuse(f"{type(row).__name__} {row.id} is not the fold of its events")
        kinds = {table.decider.state for table in service.kept.tables}
        missing = sum(type(one.state) in kinds for one in live.values()) - found
        if missing > 0:
            self.accuse(f"{missing} of what has not finished are in no table")
        for name in service.cursors:
            if service.derived(name, BATCHES[0]) != service.digest(name):
                self.accuse(f"{name} is not what the log gives up to its cursor")


def _are_equal(row: Any, state: Any) -> bool:
    if isinstance(row, Job) and isinstance(state, Job) and row.lease and state.lease:
        # Heartbeats, which are no events, move the end of a lease, and only on.
        until = min(row.lease.until, state.lease.until)
        row = replace(row, lease=replace(row.lease, until=until))
    return bool(row == state)


class Cursors(Invariant):
    id = "I-34"
    statement = "Followers have processed every event up to their cursors, once, in order."
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._cursors = case.service.cursors if case.service is not None else {}
        self._proofs = dict.fromkeys(self._cursors, Cursor())
        mapper = case.world.mapper
        models = case.service.kept.read_models if case.service is not None else ()
        self._topics = {
            one.name: mapper.known_topics if one.kinds is None else {*mapper.topics_of(one.kinds)}
            for one in models
        }
        self.seen = bool(self._cursors)
        self.kinds = None if self.seen else ()

    def see(self, step: Step) -> str | None:
        position = step.entry.position
        for name, cursor in self._cursors.items():
            if position <= cursor.position and step.entry.topic in self._topics[name]:
                proof = self._proofs[name]
                digest = sha256(proof.digest + position.to_bytes(8, "big")).digest()
                self._proofs[name] = Cursor(position, proof.count + 1, digest)
        return None

    def end(self) -> None:
        for name, cursor in self._cursors.items():
            proof = self._proofs[name]
            if proof.count != cursor.count:
                self.accuse(f"{name} has processed {cursor.count} events, of {proof.count}")
            elif proof.digest != cursor.digest:
                self.accuse(f"{name} has processed other events, or in another order")


class Rebuilds(Invariant):
    id = "I-36"
    statement = "To derive a read model anew gives the same every time."

    def end(self) -> None:
        service = self.case.service
        for name in service.cursors if service is not None else ():
            assert service is not None
            self.seen = True
            if len({service.derived(name, size) for size in BATCHES}) > 1:
                self.accuse(f"{name} comes out differently with other batches")


class NothingStuck(Invariant):
    id = "I-38"
    statement = "No claim is open long after it was due."
    kinds = (Order.Claimed, *ORDER_ENDS)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._open: dict[UUID, Step] = {}

    def see(self, step: Step) -> str | None:
        self._open.pop(step.entry.aggregate, None)
        if isinstance(step.event, Order.Claimed):
            self._open[step.entry.aggregate] = step
        return None

    def end(self) -> None:
        for step in self._open.values():
            claim = step.after.claim
            if self._is_stuck(claim.due_at, claim.due_at - claim.started_at):
                self.accuse_step(step, f"it is still open, and was due at {claim.due_at}")
        # Heartbeats are not in the log: how long a lease lasts is known from the table alone.
        for job in self.case.service.rows() if self.case.service is not None else ():
            if isinstance(job, Job) and job.lease is not None:
                self.seen = True
                if self._is_stuck(job.lease.until, timedelta(seconds=job.lease_seconds)):
                    self.accuse(f"job {job.id} is still claimed under a lease that is over")

    def _is_stuck(self, due_at: datetime, lease: timedelta) -> bool:
        patience = max(lease, GRACE_SECONDS) + SWEEP_SECONDS
        return self.case.world.now > max(due_at, self.case.calm_since + lease) + patience


class Lag(Invariant):
    id = "I-39"
    statement = "No follower is far behind the log."

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._cursors = case.service.cursors if case.service is not None else {}
        self._behind: dict[str, Step] = {}
        """The first event that a follower has not processed."""

        self.kinds = None if self._cursors else ()

    def see(self, step: Step) -> str | None:
        for name, cursor in self._cursors.items():
            if step.entry.position > cursor.position:
                self._behind.setdefault(name, step)
        return None

    def end(self) -> None:
        for name, step in self._behind.items():
            since = max(step.entry.recorded_at, self.case.calm_since)
            if self.case.world.now > since + LAG_SECONDS_MAX:
                self.accuse_step(step, f"{name} has not processed it yet")


INVARIANTS = (Tables, Cursors, Rebuilds, NothingStuck, Lag)
