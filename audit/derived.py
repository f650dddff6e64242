"""What is derived from the log: tables that equal its fold, followers that skip nothing, no delay."""

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from audit.invariant import Case, Invariant
from audit.kitchen import ORDER_ENDS
from audit.service import Cursor, Service
from audit.world import Step
from domain.event import State
from domain.job import Job
from domain.order import Order

# Two sizes of batches: what comes out must not depend on them.
BATCHES = (2000, 701)
LAG_SECONDS_MAX = timedelta(seconds=5)
SWEEP_SECONDS = timedelta(seconds=1)
# How long a scheduler outside is waited for before a claim is completed without it.
GRACE_SECONDS = timedelta(seconds=5)


class Tables(Invariant):
    id = "I-33"
    statement = "Every table equals the fold of the log up to its cursor."

    def end(self) -> None:
        service = self.case.service
        if service is None:
            return
        self.seen = True
        self._compare_live_tables(service)
        for name in followed(self.case):
            if service.rebuilt(name, self.case.world.mapper, BATCHES[0]) != service.digest(name):
                self.accuse(f"{name} differs from what the log gives up to its cursor")

    def _compare_live_tables(self, service: Service) -> None:
        found = 0
        for decider, row in service.rows():
            found += 1
            if not _are_equal(row, self.case.world.get(row.id)):
                self.accuse(f"{decider.name} {row.id} differs from the fold of its events")
        kinds = {table.decider.state for table in service.kept.tables}
        missing = sum(type(one.state) in kinds for one in self.case.world.live.values()) - found
        if missing > 0:
            self.accuse(f"{missing} of what has not finished are in no table")


def _are_equal(row: State, state: Any) -> bool:
    if isinstance(row, Job) and isinstance(state, Job) and row.lease and state.lease:
        # Heartbeats, which are no events, move the end of a lease, and only on.
        if row.lease.until < state.lease.until:
            return False
        row = replace(row, lease=replace(row.lease, until=state.lease.until))
    return bool(row == state)


class Cursors(Invariant):
    id = "I-34"
    statement = "Followers have processed every event up to their cursors, once, in order."
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._cursors = followed(case)
        self._proofs = dict.fromkeys(self._cursors, Cursor(0, 0, b""))
        models = case.service.kept.read_models if case.service is not None else ()
        topics = case.world.mapper.topics_of
        self._topics = {
            one.name: case.world.mapper.known_topics if one.kinds is None else {*topics(one.kinds)}
            for one in models
        }
        self.sees_all = self.seen = bool(self._cursors)

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
        service, mapper = self.case.service, self.case.world.mapper
        if service is None:
            return
        for name in followed(self.case):
            self.seen = True
            if len({service.rebuilt(name, mapper, size) for size in BATCHES}) > 1:
                self.accuse(f"{name} comes out differently with other batches")


class NothingStuck(Invariant):
    id = "I-38"
    statement = "No claim is open long after it was due."
    kinds = (Order.Claimed, *ORDER_ENDS)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._open: dict[UUID, Step] = {}

    def see(self, step: Step) -> str | None:
        if isinstance(step.event, Order.Claimed):
            self._open[step.entry.aggregate] = step
        else:
            self._open.pop(step.entry.aggregate, None)
        return None

    def end(self) -> None:
        for step in self._open.values():
            claim = step.after.claim
            if self._is_stuck(claim.due_at, claim.due_at - claim.started_at):
                self.accuse_step(step, f"still open, though due at {claim.due_at}")
        # Heartbeats are not in the log, so how long a lease lasts is known from the table alone.
        rows = self.case.service.rows() if self.case.service is not None else ()
        for _, job in rows:
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
        self._behind: dict[str, Step] = {}
        """The first event that a follower has not processed."""

        self._cursors = followed(case)
        self.sees_all = bool(self._cursors)

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


def followed(case: Case) -> dict[str, Cursor]:
    """The cursors of the read models that have begun to follow the log."""
    if case.service is None:
        return {}
    known = {model.name for model in case.service.kept.read_models}
    return {name: one for name, one in case.service.cursors().items() if name in known}


INVARIANTS = (Tables, Cursors, Rebuilds, NothingStuck, Lag)
