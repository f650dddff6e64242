"""Messages: jobs of a lane under the names that publishers and consumers of messages know.

A message is a job of one type in the lane of its queue and partition. Its transaction id, together
with the lane's, makes the job's id: the same message pushed twice is one job, and whoever
acknowledges it names it by these two.
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
"""Where messages go whose pusher names no partition: into one lane of their queue."""


def message_id(partition_id: UUID, transaction_id: str) -> UUID:
    return derived_id(partition_id, transaction_id)


def message_key(partition: str, transaction_id: str) -> str:
    """The unique key of the job; a transaction id stands for one message of one partition."""
    return f"{partition}/{transaction_id}"


def transaction_id(job: Job) -> str:
    assert job.unique_key is not None, "a message has a transaction id"
    assert job.partition is not None, "a message has a partition"
    return job.unique_key[len(job.partition) + 1 :]


def partition_id(job: Job) -> UUID:
    assert job.partition is not None, "a message has a partition"
    return lane_id(job.queue, job.partition)


class AcknowledgeAll(Struct, frozen=True, gc=False):
    """All of them or none: the first refusal is the answer."""

    finish: FinishJobs

    @property
    def needs(self) -> Needs:
        return self.finish.needs

    def decide(self, work: UnitOfWork) -> Sequence[Job]:
        settled = self.finish.decide(work)
        for one in settled:
            if isinstance(one.answer, Refusal):
                raise one.answer
        return [one.answer for one in settled if isinstance(one.answer, Job)]
