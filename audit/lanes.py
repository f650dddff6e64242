"""Lanes: in a partition, one thing after another, whichever way it came in."""

from heapq import heappop, heappush
from uuid import UUID

from daybook.audit.invariant import Case, Invariant
from daybook.audit.replayed_state import ReplayedEvent
from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job
from daybook.domain.messages.operation import OPERATION, Operation

Place = tuple[int, int]
"""The position of the event with which something entered its lane, and its number: those that an
operation brought in share its position."""


class LaneHistory:
    """Who stands in one lane, and who is first."""

    def __init__(self) -> None:
        self._places: dict[UUID, Place] = {}
        self._order: list[tuple[Place, UUID]] = []

    def enter(self, one: UUID, place: Place) -> None:
        self._places[one] = place
        heappush(self._order, (place, one))

    def leave(self, one: UUID) -> None:
        self._places.pop(one, None)

    @property
    def first(self) -> UUID | None:
        """Those that have left are taken out when they come to the front."""
        while self._order and self._places.get(self._order[0][1]) != self._order[0][0]:
            heappop(self._order)
        return self._order[0][1] if self._order else None


class Lanes(Invariant):
    id = "I-24"
    statement = "In a partition, a job is not claimed before those ahead of it have ended."
    kinds: tuple[type[Event], ...] = (*JOB.events, *OPERATION.events)
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._lanes: dict[tuple[str, str | None], LaneHistory] = {}
        self._accepted: dict[UUID, int] = {}
        """Where the operations stand that were accepted and have not been carried out."""

    def see(self, step: ReplayedEvent) -> str | None:
        if isinstance(step.after, Operation):
            return self._see_operation(step, step.after)
        job: Job = step.after
        if job.partition is None:
            return None
        line = self._line(job.queue, job.partition)
        if isinstance(step.event, Job.Claimed):
            self.seen = True
            first = line.first
            return None if first in (None, job.id) else f"claimed while {first} is ahead of it"
        was = None if step.before is None else step.before.entered
        if job.entered == was:
            return None
        line.leave(job.id)
        return None if job.entered is None else self._enter(step, line, job)

    def _enter(self, step: ReplayedEvent, line: LaneHistory, job: Job) -> str | None:
        position = step.entry.position
        if job.operation_id is not None:
            if job.operation_id not in self._accepted:
                return f"brought in by operation {job.operation_id}, which nobody accepted"
            position = self._accepted[job.operation_id]
        line.enter(job.id, (position, job.number))
        return None

    def _see_operation(self, step: ReplayedEvent, operation: Operation) -> str | None:
        was = set() if step.before is None else step.before.lanes
        if isinstance(step.event, Operation.Created):
            self._accepted[operation.id] = step.entry.position
        elif operation.is_over:
            self._accepted.pop(operation.id, None)
        for lane in operation.lanes - was:
            self._line(*lane).enter(operation.id, (step.entry.position, 0))
        for lane in was - operation.lanes:
            self._line(*lane).leave(operation.id)
        return None

    def _line(self, queue: str, partition: str | None) -> LaneHistory:
        return self._lanes.setdefault((queue, partition), LaneHistory())
