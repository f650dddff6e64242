"""Invariants on jobs: conservation, attempts, fencing, backoff, unique keys and follow-ups."""

from collections import OrderedDict
from uuid import UUID

from daybook.audit.actors import SYSTEM
from daybook.audit.invariant import Case, Invariant
from daybook.audit.lanes import Lanes
from daybook.audit.replayed_state import ReplayedEvent
from daybook.domain.event import Event
from daybook.domain.jobs.create import follow_up_id
from daybook.domain.jobs.job import JOB, Job, JobStatus, UniqueScope
from daybook.domain.orders.order import ORDER, Order

RESULTS = (Job.Completed, Job.Failed, Job.Released, Job.Snoozed)
# UUIDs derived from names have this version.
DERIVED = 5
# Events of two commands interleave only if recorded at the same time.
COMMANDS_MAX = 1000

# Status before each event; None if the job must not exist.
SOURCES: dict[type[Event], set[JobStatus | None]] = {
    Job.Created: {None, JobStatus.COMPLETED, JobStatus.CANCELLED},
    Job.Claimed: {JobStatus.PENDING},
    **{result: {JobStatus.PROCESSING} for result in RESULTS},
    Job.Rescheduled: {JobStatus.PENDING},
    Job.MovedToDLQ: {JobStatus.PENDING},
    Job.Requeued: {JobStatus.DEAD, JobStatus.CANCELLED},
    Job.Cancelled: {JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.DEAD},
}


class Conservation(Invariant):
    """A job that only moves from its current status is counted once at every moment."""

    id = "I-21"
    statement = "Every job that was enqueued is pending, processing, completed, dead or cancelled."
    kinds = tuple(SOURCES)

    def check(self, step: ReplayedEvent) -> str | None:
        status = None if step.before is None else step.before.status
        is_there = status in SOURCES[type(step.event)]
        return None if is_there else f"the event cannot happen to a job that is {status}"


class Attempts(Invariant):
    id = "I-22"
    statement = (
        "Attempts are counted one by one up to their limit, and then there is a dead letter."
    )
    kinds = (*JOB.events, *(kind for kind in ORDER.events if kind is not Order.Created))

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._exhausted: dict[UUID, ReplayedEvent] = {}
        """The last attempt of these failed: the next event must move them to the dead letters."""

    def check(self, step: ReplayedEvent) -> str | None:
        event, before = step.event, step.before
        exhausted = self._exhausted.pop(step.entry.aggregate, None)
        if isinstance(event, (Job.MovedToDLQ, Order.MovedToDLQ)) is (exhausted is None):
            if exhausted is None:
                return "moved to the dead letters although attempts remain"
            self.report_at(
                exhausted, "its last attempt failed, but it was not moved to the dead letters next"
            )
        if isinstance(event, (Job.Claimed, Order.Claimed)):
            return _wrong_attempt(event.attempt, before.attempts, before.attempts_max)
        if _is_last(event, before):
            self._exhausted[step.entry.aggregate] = step
        if isinstance(event, Job.Failed) and (event.retry_at is None) is not _is_last(
            event, before
        ):
            return "its retry time contradicts the attempts that remain"
        return None

    def end(self) -> None:
        for step in [one for one in self._exhausted.values() if not self.may_continue(one)]:
            self.report_at(step, "its last attempt failed, but it is not among the dead letters")


def _wrong_attempt(attempt: int, attempts: int, attempts_max: int) -> str | None:
    if attempt != attempts + 1:
        return f"attempt {attempt} after {attempts}"
    return f"attempt {attempt} of {attempts_max}" if attempt > attempts_max else None


def _is_last(event: Event, before: Job | Order) -> bool:
    match event:
        case Job.Failed() | Order.Failed():
            return not event.retryable or before.attempts >= before.attempts_max
        case Order.Released():
            return event.reason.counts and before.attempts >= before.attempts_max
    return False


class Fences(Invariant):
    id = "I-23"
    statement = "Every claim has an id of its own, and only the current one has an effect."
    kinds = (Job.Claimed, Order.Claimed, *RESULTS)

    def check(self, step: ReplayedEvent) -> str | None:
        event = step.event
        if isinstance(event, (Job.Claimed, Order.Claimed)):
            facts, index = self.case.replay.facts, step.index
            facts.add("claim", event.claim_id.bytes, str(index), index, step.entry.position)
            return None
        claim = step.before.claim
        if claim is None:
            return f"names claim {event.claim_id}, but the job has no claim"
        if claim.id != event.claim_id:
            return f"names claim {event.claim_id}, but {claim.id} holds the job"
        return None

    def end(self) -> None:
        if conflict := self.case.replay.facts.first_conflict("claim"):
            self.report("its claim id was used before", *conflict)


class BackoffRespected(Invariant):
    id = "I-25"
    statement = "No job is taken before its time, and no retry is set before its failure."
    kinds = (Job.Claimed, Job.Failed)

    def check(self, step: ReplayedEvent) -> str | None:
        event = step.event
        if isinstance(event, Job.Failed):
            is_early = event.retry_at is not None and event.retry_at < event.at
            return "to be retried before it failed" if is_early else None
        run_at = step.before.run_at
        # The due time is compared after `at` was read and before the event is recorded.
        is_early = run_at is not None and step.entry.recorded_at < run_at
        return f"claimed before {run_at}" if is_early else None


class UniqueKeys(Invariant):
    id = "I-26"
    statement = "There is never more than one unfinished job for a unique key."
    kinds = (Job.Created, Job.Requeued, Job.Completed, Job.Cancelled)
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._holders: dict[tuple[str, str, str], UUID] = {}

    def check(self, step: ReplayedEvent) -> str | None:
        job, before = step.after, step.before
        if isinstance(step.event, Job.Created) and before is not None:
            if not before.is_over:
                return "created again before it was over"
            if job.unique_scope is not UniqueScope.UNFINISHED:
                return "created again although its unique key is reserved for ever"
        if job.unique_key is None:
            return None
        self.seen = True
        key = job.queue, job.type, job.unique_key
        if job.is_over:
            self._holders.pop(key, None)
            return None
        holder = self._holders.setdefault(key, job.id)
        return None if holder == job.id else f"its unique key belongs to job {holder}"


class Chains(Invariant):
    """A completion and its follow-ups are one command, and the follow-ups' ids derive from it."""

    id = "I-28"
    statement = "A follow-up has one completion that caused it, and each completion has all of its."
    kinds = (Job.Completed, Job.Created)
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._completions: OrderedDict[UUID, tuple[ReplayedEvent, int]] = OrderedDict()
        """The last completion of each recent command, and its follow-ups so far."""

    def check(self, step: ReplayedEvent) -> str | None:
        command_id = step.entry.command_id
        if isinstance(step.event, Job.Completed):
            self._check_count(self._completions.pop(command_id, None))
            self._completions[command_id] = step, 0
            self.seen |= step.event.follow_ups_count > 0
            if len(self._completions) > COMMANDS_MAX:
                self._check_count(self._completions.popitem(last=False)[1])
            return None
        cause = self._completions.get(command_id)
        if cause is None:
            return self._orphan(step)
        self.seen = True
        completion, index = cause
        self._completions[command_id] = completion, index + 1
        job = completion.after
        if step.entry.aggregate != follow_up_id(job, index):
            return f"it is not follow-up {index + 1} of job {job.id}, which its command completed"
        return None

    def end(self) -> None:
        for completion, index in self._completions.values():
            if not self.may_continue(completion):
                self._check_count((completion, index))

    def _check_count(self, ended: tuple[ReplayedEvent, int] | None) -> None:
        if ended is not None and ended[1] < ended[0].event.follow_ups_count:
            wanted = ended[0].event.follow_ups_count
            self.report_at(ended[0], f"it created {ended[1]} follow-ups, but records {wanted}")

    @staticmethod
    def _orphan(step: ReplayedEvent) -> str | None:
        """Derived ids belong to unique keys, to jobs of processors, and to follow-ups."""
        is_derived = step.entry.aggregate.version == DERIVED and step.event.unique_key is None
        if is_derived and not step.entry.actor.startswith(SYSTEM):
            return "it is a follow-up, but its command completes no job"
        return None


INVARIANTS = (Conservation, Attempts, Fences, Lanes, BackoffRespected, UniqueKeys, Chains)
