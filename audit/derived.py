"""Invariants on derived data: tables equal the fold of the log, followers skip nothing, no work is
overdue."""

from concurrent.futures import Future
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from psycopg.rows import TupleRow

from daybook.audit.invariant import Case, Invariant
from daybook.audit.orders import ORDER_ENDS
from daybook.audit.replayed_state import LONG_AGO, ReplayedEvent
from daybook.audit.service_database import FollowerRow, TableCopy
from daybook.domain.jobs.job import Job
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.order import Order
from daybook.domain.schedules.schedule import Schedule

# The result must not depend on the batch size. The running table, built in other batches, is
# compared up to its cursor; this covers the beginning of the log.
BATCH, OTHER_BATCH = 20_000, 701
BEGINNING = 100_000
END = 2**63 - 1
LAG_SECONDS_MAX = timedelta(seconds=5)
# Grace for an external scheduler, and the time of one sweep.
GRACE_SECONDS, SWEEP_SECONDS = timedelta(seconds=5), timedelta(seconds=1)


class Tables(Invariant):
    id = "I-33"
    statement = "Every table equals the fold of the log, now and whenever it was copied."
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._copies: dict[int, list[TableCopy]] = {}
        self._derived: dict[str, Future[TupleRow]] = {}
        if case.service is not None:
            self.kinds, self.seen = None, True
            self._copies = case.service.copies
            names = case.service.models
            self._derived = {name: case.service.derive(name, BATCH, END) for name in names}

    def check(self, step: ReplayedEvent) -> str | None:
        """Compares copies of live tables at the positions where they were taken."""
        for copy in self._copies.get(step.entry.position, ()):
            assert self.case.service is not None, "only a database has copies"
            kind = copy.table.decider.state
            copied = {row.id: row for row in self.case.service.copied(copy)}
            states = (current.state for current in self.case.replay.live.values())
            folded = {state.id: state for state in states if isinstance(state, kind)}
            for one in copied.keys() | folded.keys():
                if one.int not in self.case.replay.set_aside and not self._are_equal(
                    copied.get(one), folded.get(one)
                ):
                    return f"{kind.__name__} {one} was not the fold of its events here"
        return None

    def _are_equal(self, row: Any, state: Any) -> bool:
        return _are_equal(row, state, has_jumped=self.case.replay.jumped_at > LONG_AGO)

    def end(self) -> None:
        service = self.case.service
        if service is None:
            return
        for one in service.unloadable:
            self.report(f"{one} has a row that cannot be loaded")
        live, found = self.case.replay.live, 0
        for row in service.rows():
            found += 1
            if not self._are_equal(row, self.case.replay.get(row.id)):
                self.report(f"{type(row).__name__} {row.id} is not the fold of its events")
        kinds = {table.decider.state for table in service.stored.tables}
        missing = sum(type(one.state) in kinds for one in live.values()) - found
        if missing > 0:
            self.report(f"{missing} unfinished aggregates are in no table")
        for name, derived in self._derived.items():
            if derived.result() != service.digest(name):
                self.report(f"{name} differs from a rebuild from the log")


def _are_equal(row: Any, state: Any, *, has_jumped: bool) -> bool:
    if isinstance(row, Job) and isinstance(state, Job) and row.claim and state.claim:
        # Heartbeats are not events and extend the lease; only a clock jump shortens it.
        until = state.claim.until
        if not has_jumped:
            until = min(row.claim.until, until)
        row = replace(row, claim=replace(row.claim, until=until))
    return bool(row == state)


class Cursors(Invariant):
    id = "I-34"
    statement = "Followers have processed every event up to their cursors, once, in order."
    sets_seen = True
    checks_set_aside = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._cursors = case.service.cursors if case.service is not None else {}
        self._proofs = dict.fromkeys(self._cursors, FollowerRow())
        mapper = case.replay.mapper
        models = case.service.stored.read_models if case.service is not None else ()
        self._topics = {
            one.name: mapper.known_topics if one.kinds is None else {*mapper.topics_of(one.kinds)}
            for one in models
        }
        self.seen = bool(self._cursors)
        self.kinds = None if self.seen else ()

    def check(self, step: ReplayedEvent) -> str | None:
        position = step.entry.position
        for name, cursor in self._cursors.items():
            if position <= cursor.position and step.entry.topic in self._topics[name]:
                proof = self._proofs[name]
                digest = sha256(proof.digest + position.to_bytes(8, "big")).digest()
                self._proofs[name] = FollowerRow(position, proof.count + 1, digest)
        return None

    def end(self) -> None:
        for name, cursor in self._cursors.items():
            proof = self._proofs[name]
            if proof.count != cursor.count:
                self.report(f"{name} has processed {cursor.count} of {proof.count} events")
            elif proof.digest != cursor.digest:
                self.report(f"{name} has processed other events, or in another order")


class Rebuilds(Invariant):
    id = "I-36"
    statement = "Rebuilding a read model gives the same result every time."

    def end(self) -> None:
        service = self.case.service
        for name in service.models if service is not None else ():
            assert service is not None
            self.seen = True
            sizes = BATCH, OTHER_BATCH
            if len({service.derive(name, size, BEGINNING).result() for size in sizes}) > 1:
                self.report(f"{name} differs when rebuilt with another batch size")


class NothingStuck(Invariant):
    id = "I-38"
    statement = "No claim stays open, no order waits beside an idle bot, no schedule is overdue."
    kinds = (Order.Claimed, *ORDER_ENDS)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._open: dict[UUID, ReplayedEvent] = {}

    def check(self, step: ReplayedEvent) -> str | None:
        self._open.pop(step.entry.aggregate, None)
        if isinstance(step.event, Order.Claimed):
            self._open[step.entry.aggregate] = step
        return None

    def end(self) -> None:
        set_aside = self.case.replay.set_aside
        for step in self._open.values():
            if step.entry.aggregate.int in set_aside:
                continue
            claim = step.after.claim
            if self._is_stuck(claim.until, claim.until - claim.started_at):
                self.report_at(step, f"the claim is still open, and was due at {claim.until}")
        # Heartbeats are not in the log: only the table knows the end of a lease.
        for job in self.case.service.rows() if self.case.service is not None else ():
            if isinstance(job, Job) and job.claim is not None:
                self.seen = True
                if self._is_stuck(job.claim.until, timedelta(seconds=job.lease_seconds)):
                    self.report(f"job {job.id} is still claimed after its lease expired")
        self._report_idleness([one.state for one in self.case.replay.live.values()])

    def _report_idleness(self, states: list[Any]) -> None:
        """Reports work that the service does at once, without a request."""
        orders = [one for one in states if isinstance(one, Order) and one.is_ready]
        bots = [one for one in states if isinstance(one, Bot) and one.auto_claim]
        idle = [bot.updated_at for bot in bots if bot.order_id is None and bot.dead_at is None]
        for order in orders if idle else ():
            if self._is_stuck(max(order.updated_at, min(idle)), timedelta(0)):
                self.report(f"order {order.id} waits although an auto-claim bot is idle")
        for one in states:
            due_at = one.next_run_at if isinstance(one, Schedule) else None
            if due_at is not None and self._is_stuck(due_at, timedelta(0)):
                self.report(f"schedule {one.name} was due at {due_at} and has not run")

    def _is_stuck(self, due_at: datetime, lease: timedelta) -> bool:
        tolerance = max(lease, GRACE_SECONDS) + SWEEP_SECONDS
        calm_since = max(self.case.calm_since, self.case.replay.jumped_at)
        return self.case.replay.now > max(due_at, calm_since + lease) + tolerance


class Lag(Invariant):
    id = "I-39"
    statement = "No follower is far behind the log."
    checks_set_aside = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._cursors = case.service.cursors if case.service is not None else {}
        self._behind: dict[str, ReplayedEvent] = {}  # First unprocessed event
        self.kinds = None if self._cursors else ()

    def check(self, step: ReplayedEvent) -> str | None:
        for name, cursor in self._cursors.items():
            if step.entry.position > cursor.position:
                self._behind.setdefault(name, step)
        return None

    def end(self) -> None:
        for name, step in self._behind.items():
            since = max(step.entry.recorded_at, self.case.calm_since)
            if self.case.replay.now > since + LAG_SECONDS_MAX:
                self.report_at(step, f"{name} has not processed it yet")


INVARIANTS = (Tables, Cursors, Rebuilds, NothingStuck, Lag)
