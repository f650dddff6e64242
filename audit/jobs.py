"""Jobs: counted, fenced, retried within limits, never too early, and chained exactly once."""

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
# The version of UUIDs that are made from names.
DERIVED = 5
# Events of two commands lie between each other only if they were recorded at the same time.
COMMANDS_MAX = 1000

# Where each event takes a job from. None: there was no such job.
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
    """A job that is only ever moved from where it is counted is counted once, at every moment."""

    id = "I-21"
    statement = "Every job that was enqueued is pending, processing, completed, dead or cancelled."
    kinds = tuple(SOURCES)

    def see(self, step: ReplayedEvent) -> str | None:
        status = None if step.before is None else step.before.status
        is_there = status in SOURCES[type(step.event)]
        return None if is_there else f"it moves a job from where it is not: the job is {status}"


class Attempts(Invariant):
    id = "I-22"
    statement = (
        "Attempts are counted one by one up to their limit, and then there is a dead letter."
    )
    kinds = (*JOB.events, *(kind for kind in ORDER.events if kind is not Order.Created))

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._doomed: dict[UUID, ReplayedEvent] = {}
        """What has had its last attempt, and must be moved to the dead letters next."""

    def see(self, step: ReplayedEvent) -> str | None:
        event, before = step.event, step.before
        doomed = self._doomed.pop(step.entry.aggregate, None)
        if isinstance(event, (Job.MovedToDLQ, Order.MovedToDLQ)) is (doomed is None):
            if doomed is None:
                return "moved to the dead letters, though it may be tried again"
            self.accuse_step(doomed, "its last attempt failed, but it went on")
        if isinstance(event, (Job.Claimed, Order.Claimed)):
            return _wrong_attempt(event.attempt, before.attempts, before.attempts_max)
        if _is_last(event, before):
            self._doomed[step.entry.aggregate] = step
        if isinstance(event, Job.Failed) and (event.retry_at is None) is not _is_last(
            event, before
        ):
            return "it says that it is tried again, and is not, or the other way round"
        return None

    def end(self) -> None:
        for step in [one for one in self._doomed.values() if not self.may_go_on(one)]:
            self.accuse_step(step, "its last attempt failed, but it is not among the dead letters")


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

    def see(self, step: ReplayedEvent) -> str | None:
        event = step.event
        if isinstance(event, (Job.Claimed, Order.Claimed)):
            memory, place = self.case.world.memory, step.place
            memory.note("claim", event.claim_id.bytes, str(place), place, step.entry.position)
            return None
        lease = step.before.lease
        if lease is None:
            return f"names claim {event.claim_id}, but nobody holds the job"
        if lease.claim_id != event.claim_id:
            return f"names claim {event.claim_id}, but {lease.claim_id} holds the job"
        return None

    def end(self) -> None:
        if clash := self.case.world.memory.clash("claim"):
            self.accuse("its claim id was used before", *clash)


class BackoffIsKept(Invariant):
    id = "I-25"
    statement = "No job is taken before its time, and no retry is set before its failure."
    kinds = (Job.Claimed, Job.Failed)

    def see(self, step: ReplayedEvent) -> str | None:
        event = step.event
        if isinstance(event, Job.Failed):
            is_early = event.retry_at is not None and event.retry_at < event.at
            return "to be retried before it failed" if is_early else None
        run_at = step.before.run_at
        # Its time is looked at after `at` was read, and before it is recorded.
        is_early = run_at is not None and step.entry.recorded_at < run_at
        return f"claimed before {run_at}" if is_early else None


class UniqueKeys(Invariant):
    id = "I-26"
    statement = "There is never more than one unfinished job for a unique key."
    kinds = (Job.Created, Job.Requeued, Job.Completed, Job.Cancelled)
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._holders: dict[tuple[str, str, str], UUID] = {}

    def see(self, step: ReplayedEvent) -> str | None:
        job, before = step.after, step.before
        if isinstance(step.event, Job.Created) and before is not None:
            if not before.is_over:
                return "begun anew before it was over"
            if job.unique_scope is not UniqueScope.UNFINISHED:
                return "begun anew, though its key stands for one job for ever"
        if job.unique_key is None:
            return None
        self.seen = True
        key = job.queue, job.type, job.unique_key
        if job.is_over:
            self._holders.pop(key, None)
            return None
        holder = self._holders.setdefault(key, job.id)
        return None if holder == job.id else f"its unique key is held by job {holder}"


class Chains(Invariant):
    """A completion and its follow-ups are one command, and their ids follow from the completion."""

    id = "I-28"
    statement = "A follow-up has one completion that caused it, and each completion has all of its."
    kinds = (Job.Completed, Job.Created)
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._completions: OrderedDict[UUID, tuple[ReplayedEvent, int]] = OrderedDict()
        """The last completion of each recent command, and how many follow-ups it has so far."""

    def see(self, step: ReplayedEvent) -> str | None:
        command_id = step.entry.command_id
        if isinstance(step.event, Job.Completed):
            self._settle(self._completions.pop(command_id, None))
            self._completions[command_id] = step, 0
            self.seen |= step.event.follow_ups_count > 0
            if len(self._completions) > COMMANDS_MAX:
                self._settle(self._completions.popitem(last=False)[1])
            return None
        cause = self._completions.get(command_id)
        if cause is None:
            return self._orphan(step)
        self.seen = True
        completion, place = cause
        self._completions[command_id] = completion, place + 1
        job = completion.after
        if step.entry.aggregate != follow_up_id(job, place):
            return f"it is not follow-up {place + 1} of job {job.id}, which its command completed"
        return None

    def end(self) -> None:
        for completion, place in self._completions.values():
            if not self.may_go_on(completion):
                self._settle((completion, place))

    def _settle(self, ended: tuple[ReplayedEvent, int] | None) -> None:
        if ended is not None and ended[1] < ended[0].event.follow_ups_count:
            wanted = ended[0].event.follow_ups_count
            self.accuse_step(ended[0], f"it created {ended[1]} jobs, and says {wanted}")

    @staticmethod
    def _orphan(step: ReplayedEvent) -> str | None:
        """Ids that follow from something else are those of unique keys, of what process managers
        create, and of follow-ups."""
        is_derived = step.entry.aggregate.version == DERIVED and step.event.unique_key is None
        if is_derived and not step.entry.actor.startswith(SYSTEM):
            return "it is a follow-up, and its command completes nothing"
        return None


INVARIANTS = (Conservation, Attempts, Fences, Lanes, BackoffIsKept, UniqueKeys, Chains)
