"""The SDK: client, worker and transactional enqueue. It imports nothing of the service.

from daybook import Client, Worker
"""

from daybook.app.app import Daybook
from daybook.app.typed_job import JobHandle, TypedJob
from daybook.client.backoff import Backoff
from daybook.client.client import AsyncClient, Client
from daybook.client.jobs import (
    Claim,
    ClaimedJob,
    FollowUp,
    Heartbeats,
    Job,
    JobStatus,
    Limits,
    NewJob,
    Queue,
    Rate,
    Redriven,
    Reported,
    Result,
)
from daybook.client.messages import (
    Acknowledged,
    Acknowledgment,
    Message,
    NewMessage,
    Operation,
    Pushed,
    Receipt,
    Transacted,
)
from daybook.enqueue import enqueue, enqueue_async
from daybook.errors import (
    BadValue,
    ClaimLost,
    DaybookError,
    EnqueueFailed,
    JobFailed,
    NotFound,
    OperationFailed,
    OperationTimeout,
    Refused,
    ServerFault,
    Unavailable,
)
from daybook.worker.current_job import current_job
from daybook.worker.held_claims import FIVE_MINUTE_LEASE, Lease
from daybook.worker.outcomes import Fail, Retry, Snooze
from daybook.worker.worker import Worker
from daybook.worker.worker_log import JSONLines

__all__ = [
    "FIVE_MINUTE_LEASE",
    "Acknowledged",
    "Acknowledgment",
    "AsyncClient",
    "Backoff",
    "BadValue",
    "Claim",
    "ClaimLost",
    "ClaimedJob",
    "Client",
    "Daybook",
    "DaybookError",
    "EnqueueFailed",
    "Fail",
    "FollowUp",
    "Heartbeats",
    "JSONLines",
    "Job",
    "JobFailed",
    "JobHandle",
    "JobStatus",
    "Lease",
    "Limits",
    "Message",
    "NewJob",
    "NewMessage",
    "NotFound",
    "Operation",
    "OperationFailed",
    "OperationTimeout",
    "Pushed",
    "Queue",
    "Rate",
    "Receipt",
    "Redriven",
    "Refused",
    "Reported",
    "Result",
    "Retry",
    "ServerFault",
    "Snooze",
    "Transacted",
    "TypedJob",
    "Unavailable",
    "Worker",
    "current_job",
    "enqueue",
    "enqueue_async",
]
