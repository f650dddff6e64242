"""`daybook bench gate`: cost per event of the final check before the log, without a database."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from time import process_time
from typing import Any

import click
from msgspec import Raw
from msgspec.json import Encoder
from uuid_utils.compat import uuid7

from bench.harness.rounds import console
from daybook.api.clock import now
from daybook.domain.deciders import DECIDERS
from daybook.domain.event import Event
from daybook.domain.jobs.job import Job
from daybook.eventlog.codec import EventMapper

COUNT = 5_000


@click.command("gate")
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1))
@click.option("--payload-bytes", default=100, show_default=True, type=click.IntRange(2, 60_000))
def command(rounds: int, payload_bytes: int) -> None:
    """Measure µs per event: encoded only, and encoded, decoded and compared."""
    encode, seal = Encoder().encode, EventMapper(DECIDERS).encode_checked
    cost = 0.0
    for event in _life(payload_bytes):
        without, with_it = _micros(encode, event, rounds), _micros(seal, event, rounds)
        cost += with_it - without
        console.print(f"{event.topic:<16} {without:6.2f} µs  {with_it:6.2f} µs")
    console.print(f"The gate costs {cost:.2f} µs a job: three events.")


def _life(payload_bytes: int) -> Sequence[Event]:
    at, claim_id = now(), uuid7()
    payload = Raw(b'"%b"' % (b"x" * (payload_bytes - 2)))
    return [
        Job.Created(
            at=at,
            job_id=uuid7(),
            number=1,
            queue="email",
            type="send",
            payload=payload,
            priority=5,
            attempts_max=3,
            lease_seconds=90.0,
        ),
        Job.Claimed(
            at=at,
            claim_id=claim_id,
            worker="worker-1",
            lease_until=at + timedelta(seconds=90),
            attempt=1,
        ),
        Job.Completed(at=at, claim_id=claim_id, result=payload),
    ]


# The minimum of many short rounds in CPU time: other load on the machine only adds to it.
def _micros(encode: Callable[[Any], object], event: Event, rounds: int) -> float:
    return min([_round(encode, event) for _ in range(rounds)]) * 1e6 / COUNT


def _round(encode: Callable[[Any], object], event: Event) -> float:
    began_at = process_time()
    for _ in range(COUNT):
        encode(event)
    return process_time() - began_at
