"""Dead jobs: reading them, and starting them over.

Many dead jobs are started over in chunks, each a command of its own, so that whoever else has
something to do has a turn in between. A request goes on for a few seconds at most. If there is more
then, its answer says where the next request goes on.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2s
from http import HTTPStatus
from itertools import count
from typing import Annotated, Self, TypedDict
from uuid import UUID

import orjson
import psycopg
from msgspec import Meta, Struct, json
from msgspec.structs import replace
from starlette.requests import Request
from starlette.routing import Route

from api.commands import (
    Body,
    Call,
    Endpoint,
    RawHeaders,
    keyed,
    origin_of,
    retry_after,
    stored,
    told_by,
)
from api.job_reads import (
    PAGE_USUAL,
    PageCursor,
    PageLimit,
    QueueWanted,
    TypeWanted,
    read_page,
)
from api.job_shapes import JobJSON, job_json
from api.jobs import Error, Name
from api.parameters import Parameters
from api.problems import KNOWN_ERRORS, Problem, problem_of, unavailable
from api.queries import AWAY, DatabaseRead
from api.requests import bad_request, read_idempotency_key
from domain.job import Job, JobStatus
from domain.workshop import RetryJobs, Settled
from eventlog.errors import OutcomeUnknownError
from eventlog.idempotency import IdempotencyKey
from eventlog.origin import Receipt, StoredAnswer
from projections.dead_jobs import DeadFilter, Stretch, count_dead, find_dead
from projections.job_place import JobFilter
from projections.page_cursor import NUMBER_MAX, BadCursorError, read_cursor, write_cursor
