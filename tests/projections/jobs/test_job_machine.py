"""Stateful test: jobs in the database behave as a model, and tables equal the fold of the log."""

from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from uuid_utils.compat import uuid7

from daybook.domain.command import Command
from daybook.domain.errors import Refusal
from daybook.domain.event import Decider, Event, S
from daybook.domain.jobs.create import CreatedJob, CreateJobs, FollowUp
from daybook.domain.jobs.job import Job, JobStatus, UniqueScope
from daybook.domain.jobs.manage import CancelJob, ConfigureQueue, RetryJob
from daybook.domain.jobs.queue import QUEUE, DeadJobPolicy, queue_id
from daybook.domain.jobs.work import (
    ClaimJobs,
    ExpireLease,
    FinishJobs,
    JobOutcome,
    JobResult,
    JobSelector,
    Outcome,
)
from tests.conftest import empty
from tests.support.committer import Submitter, fold_of_the_log, live_rows, open_submitter, rows
from tests.support.jobs import new_job
from tests.support.order_state_machine import NOON

QUEUES = ("email", "invoices")
TYPES = ("send", "print")
KEYS = (None, "a", "b")
PARTITIONS = (None, "left", "right")

READ_LAST_NUMBER = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM job_numbers"

# `behind` and `place` of every job, computed from the log alone.
READ_OVERTAKEN = """
WITH members AS (
    SELECT jobs.id, place, behind, notification_id AS logged, row_number() OVER (
        PARTITION BY queue, partition ORDER BY notification_id) > 1 AS is_behind
    FROM jobs
    JOIN stored_events ON (originator_id, originator_version) = (jobs.id, entered)
)
SELECT place FROM members WHERE (place, behind) IS DISTINCT FROM (logged, is_behind)
UNION ALL
SELECT 0 FROM jobs WHERE entered IS NULL AND (behind OR place IS NOT NULL)
"""

Claim = tuple[UUID, UUID]


class PlainWorkshop:
    """Unit of work over a dictionary: backoff has always passed, ready jobs are sorted."""

    def __init__(self) -> None:
        self.now = NOON
        self.states: dict[UUID, Any] = {}
        self.positions: dict[UUID, int] = {}
        self.events_count = 0
        self.number = 0

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        state = self.states.get(aggregate_id)
        return state if isinstance(state, decider.state) else None

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        raise NotImplementedError

    def all(self, decider: Decider[S]) -> Sequence[S]:
        raise NotImplementedError

    def pick_one(self, decider: Decider[S], among: Hashable = None) -> S | None:
        taken = self.pick(decider, among, limit=1)
        return taken[0] if taken else None

    def pick(self, decider: Decider[S], among: Hashable, *, limit: int) -> list[S]:
        assert isinstance(among, JobSelector)
        ready: list[Any] = [one for one in self.states.values() if self._is_ready(one, among)]
        ready.sort(key=lambda job: (job.priority, job.number))
        assert all(isinstance(one, decider.state) for one in ready)
        return ready[:limit]

    def next_number(self, sequence: str) -> int:
        assert sequence == "job_numbers"
        self.number += 1
        return self.number

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        before = self.states.get(aggregate_id)
        self.states[aggregate_id] = decider.evolve(before, event)
        state: S = self.states[aggregate_id]
        self.events_count += 1
        if isinstance(state, Job) and state.entered != (before and before.entered):
            self.positions[aggregate_id] = self.events_count
        return state

    def _is_head(self, job: Job) -> bool:
        lane = [
            one.id
            for one in self.states.values()
            if isinstance(one, Job)
            and (one.queue, one.partition) == (job.queue, job.partition)
            and one.entered is not None
        ]
        return job.partition is None or min(lane, key=self.positions.__getitem__) == job.id

    def _is_ready(self, state: Any, among: JobSelector) -> bool:
        if not isinstance(state, Job) or state.status is not JobStatus.PENDING:
            return False
        queue = self.get(QUEUE, queue_id(state.queue))
        if queue is not None and queue.paused:
            return False
        if not self._is_head(state) or among.partition not in (None, state.partition):
            return False
        return state.queue in among.queues and (among.types is None or state.type in among.types)


class WorkshopMachine(RuleBasedStateMachine):
    database: str
    portal: BlockingPortal

    jobs: Bundle[UUID] = Bundle("jobs")
    claims: Bundle[Claim] = Bundle("claims")

    @initialize()
    def open(self) -> None:
        self.unit_of_work = PlainWorkshop()
        self._submitter = self.portal.wrap_async_context_manager(open_submitter(self.database))
        self.submitter: Submitter = self._submitter.__enter__()

    def teardown(self) -> None:
        if hasattr(self, "_submitter"):
            self._submitter.__exit__(None, None, None)
            empty(self.database)

    def attempt(self, command: Command[Any]) -> Any:
        """Checks that the model and the database give the same result or refusal."""
        try:
            expected, refusal = command.decide(self.unit_of_work), None
        except Refusal as error:
            expected, refusal = None, type(error)
        with nullcontext() if refusal is None else pytest.raises(refusal):
            got = self.portal.call(self.submitter.submit, command).result
            assert _essence(got) == _essence(expected)
        # The committer takes numbers in advance, also for jobs that are not created.
        ((self.unit_of_work.number,),) = rows(self.database, READ_LAST_NUMBER)
        return expected

    @rule(
        target=jobs,
        queue=st.sampled_from(QUEUES),
        type_=st.sampled_from(TYPES),
        priority=st.integers(1, 10),
        key=st.sampled_from(KEYS),
        scope=st.sampled_from(UniqueScope),
        attempts_max=st.integers(1, 3),
        partition=st.sampled_from(PARTITIONS),
    )
    def a_job_comes(
        self,
        queue: str,
        type_: str,
        priority: int,
        key: str | None,
        scope: UniqueScope,
        attempts_max: int,
        partition: str | None,
    ) -> UUID:
        unique = {} if key is None else {"unique_key": key, "unique_scope": scope}
        fields = {"priority": priority, "attempts_max": attempts_max, "partition": partition}
        new = new_job(queue, type_, **fields, **unique)
        self.attempt(CreateJobs([new]))
        return new.job_id

    @rule(
        target=claims,
        queues=st.sets(st.sampled_from(QUEUES), min_size=1),
        types=st.none() | st.sets(st.sampled_from(TYPES), min_size=1),
        limit=st.integers(1, 3),
        partition=st.sampled_from(PARTITIONS),
    )
    def a_worker_asks(
        self, queues: set[str], types: set[str] | None, limit: int, partition: str | None
    ) -> Any:
        of_types = None if types is None else tuple(sorted(types))
        selector = JobSelector(tuple(sorted(queues)), of_types, partition)
        command = ClaimJobs(
            selector=selector, worker="w", limit=limit, claim_id=uuid7(), lease_seconds=0
        )
        taken: list[Job] = self.attempt(command)
        return multiple(*((job.id, job.claim.id) for job in taken if job.claim))

    @rule(
        claim=claims,
        outcome=st.sampled_from(Outcome),
        follow_up=st.booleans(),
        partition=st.sampled_from(PARTITIONS),
    )
    def a_worker_reports(
        self, claim: Claim, outcome: Outcome, follow_up: bool, partition: str | None
    ) -> None:
        job_id, claim_id = claim
        is_followed = follow_up and outcome is Outcome.DONE
        then = (FollowUp(type="print", partition=partition),) if is_followed else ()
        result = JobResult(
            job_id=job_id,
            claim_id=claim_id,
            outcome=outcome,
            error="boom",
            retry_delay_seconds=0,
            until=NOON,
            then=then,
        )
        self.attempt(FinishJobs(results=[result, result], jitter=0))

    @rule(claim=consumes(claims))
    def a_lease_ends(self, claim: Claim) -> None:
        job_id, claim_id = claim
        self.attempt(ExpireLease(job_id=job_id, claim_id=claim_id, jitter=0))

    @rule(job_id=jobs)
    def somebody_cancels(self, job_id: UUID) -> None:
        self.attempt(CancelJob(job_id))

    @rule(job_id=jobs)
    def somebody_retries(self, job_id: UUID) -> None:
        self.attempt(RetryJob(job_id))

    @rule(queue=st.sampled_from(QUEUES), paused=st.booleans())
    def somebody_pauses(self, queue: str, paused: bool) -> None:
        self.attempt(ConfigureQueue(name=queue, paused=paused))

    @rule(queue=st.sampled_from(QUEUES), lanes=st.sampled_from(DeadJobPolicy))
    def somebody_says_what_dead_jobs_mean_to_lanes(self, queue: str, lanes: DeadJobPolicy) -> None:
        self.attempt(ConfigureQueue(name=queue, lanes=lanes))

    @invariant()
    def the_live_tables_are_the_fold_of_the_log_and_what_the_model_says(self) -> None:
        if not hasattr(self, "_submitter"):
            return
        live = live_rows(self.database)
        assert live == fold_of_the_log(self.database)
        positions = [place for (place,) in rows(self.database, READ_OVERTAKEN)]
        assert positions == [], "one that another is before in its lane is behind, and no other"
        unfinished = [
            one
            for one in self.unit_of_work.states.values()
            if not (isinstance(one, Job) and one.is_over)
        ]
        assert _essence(sorted(live.values(), key=_id)) == _essence(sorted(unfinished, key=_id))


def _id(state: Any) -> int:
    number: int = state.id.int
    return number


def _essence(answer: Any) -> Any:
    """Without times, which the model and the database take from different clocks."""
    match answer:
        case list():
            return [_essence(one) for one in answer]
        case CreatedJob():
            return answer.is_new, _essence(answer.job)
        case JobOutcome():
            return answer.job_id, _essence(answer.answer)
        case Job() as job:
            counts = (job.attempts, job.failures, job.crashes, job.interruptions, job.life)
            return (
                job.id,
                job.version,
                job.number,
                job.status,
                counts,
                job.claim and job.claim.id,
            )
        case Refusal():
            return type(answer)
        case None:
            return None
    return answer.id, answer.version, answer.paused


@pytest.mark.parametrize("examples", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_jobs_in_the_database_behave_as_the_model(database: str, examples: int) -> None:
    with start_blocking_portal() as portal:

        class Machine(WorkshopMachine):
            pass

        Machine.database, Machine.portal = database, portal
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
