"""Invariant on lanes: the jobs of a partition run one after another."""

from heapq import heappop, heappush
from uuid import UUID

from daybook.audit.invariant import Case, Invariant
from daybook.audit.replayed_state import ReplayedEvent
from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job
from daybook.domain.messages.operation import OPERATION, Operation

LanePosition = tuple[int, int]
"""Position of the event that entered the lane, and the job's number: jobs of one operation share
its position."""


class LaneHistory:
    """The members of one lane, in order."""

    def __init__(self) -> None:
        self._positions: dict[UUID, LanePosition] = {}
        self._order: list[tuple[LanePosition, UUID]] = []

    def enter(self, one: UUID, position: LanePosition) -> None:
        self._positions[one] = position
        heappush(self._order, (position, one))

    def leave(self, one: UUID) -> None:
        self._positions.pop(one, None)

    @property
    def first(self) -> UUID | None:
        """Members that have left are removed when they reach the front."""
        while self._order and self._positions.get(self._order[0][1]) != self._order[0][0]:
            heappop(self._order)
        return self._order[0][1] if self._order else None


class Lanes(Invariant):
    id = "I-24"
    statement = "In a partition, a job is not claimed before those ahead of it have ended."
    kinds: tuple[type[Event], ...] = (*JOB.events, *OPERATION.events)
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._lanes: dict[tuple[str, str | None], LaneHistory] = {}
        self._accepted: dict[UUID, int] = {}  # Positions of operations that are pending

    def check(self, step: ReplayedEvent) -> str | None:
        if isinstance(step.after, Operation):
            return self._check_operation(step, step.after)
        job: Job = step.after
        if job.partition is None:
            return None
        lane = self._lane(job.queue, job.partition)
        if isinstance(step.event, Job.Claimed):
            self.seen = True
            first = lane.first
            return None if first in (None, job.id) else f"claimed while {first} is ahead of it"
        was = None if step.before is None else step.before.entered
        if job.entered == was:
            return None
        lane.leave(job.id)
        return None if job.entered is None else self._enter(step, lane, job)

    def _enter(self, step: ReplayedEvent, lane: LaneHistory, job: Job) -> str | None:
        position = step.entry.position
        if job.operation_id is not None:
            if job.operation_id not in self._accepted:
                return f"created by operation {job.operation_id}, which was not accepted"
            position = self._accepted[job.operation_id]
        lane.enter(job.id, (position, job.number))
        return None

    def _check_operation(self, step: ReplayedEvent, operation: Operation) -> str | None:
        was = set() if step.before is None else step.before.lanes
        if isinstance(step.event, Operation.Created):
            self._accepted[operation.id] = step.entry.position
        elif operation.is_over:
            self._accepted.pop(operation.id, None)
        for key in operation.lanes - was:
            self._lane(*key).enter(operation.id, (step.entry.position, 0))
        for key in was - operation.lanes:
            self._lane(*key).leave(operation.id)
        return None

    def _lane(self, queue: str, partition: str | None) -> LaneHistory:
        return self._lanes.setdefault((queue, partition), LaneHistory())
