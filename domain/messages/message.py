"""Messages: jobs of a lane, in the terms of publishers and consumers.

A message is a job of type `message`. Its id is derived from its lane and transaction id, so that
pushing it twice creates one job and an acknowledgement can name it by these two.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Needs, UnitOfWork
from daybook.domain.errors import Refusal
from daybook.domain.ids import derived_id
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.lane import lane_id
from daybook.domain.jobs.work import FinishJobs

MESSAGE_TYPE = "message"
PARTITION_USUAL = "Default"
"""Partition of messages pushed without one."""


def message_id(partition_id: UUID, transaction_id: str) -> UUID:
    return derived_id(partition_id, transaction_id)


def message_key(partition: str, transaction_id: str) -> str:
    """Unique key of the job: a transaction id is unique within its partition."""
    return f"{partition}/{transaction_id}"


def transaction_id(job: Job) -> str:
    assert job.unique_key is not None, "a message has a transaction id"
    assert job.partition is not None, "a message has a partition"
    return job.unique_key[len(job.partition) + 1 :]


def partition_id(job: Job) -> UUID:
    assert job.partition is not None, "a message has a partition"
    return lane_id(job.queue, job.partition)


class AcknowledgeAll(Struct, frozen=True, gc=False):
    """Acknowledges all or none; raises the first refusal."""

    finish: FinishJobs

    @property
    def needs(self) -> Needs:
        return self.finish.needs

    def decide(self, work: UnitOfWork) -> Sequence[Job]:
        outcomes = self.finish.decide(work)
        for one in outcomes:
            if isinstance(one.answer, Refusal):
                raise one.answer
        return [one.answer for one in outcomes if isinstance(one.answer, Job)]
