"""Load shedding alone: its decisions on pushes while deferred ones wait for execution."""

from typing import Any

import pytest
from msgspec import Struct

from daybook.api.runtime.load_shedding import DRAINED_SHARE, Decision, LoadShedder, Thresholds
from daybook.projections.messages.operations import BacklogNumbers

pytestmark = pytest.mark.anyio

SLOTS = 100


class IdleCommitter(Struct):
    """The figures of a committer that load shedding reads."""

    waiting_seconds: float = 0.0
    answer_seconds: float = 0.0
    high_priority_wait_seconds: float = 0.0
    last_count: int = 0
    normal_priority_count: int = 0


def shedder_of(committer: IdleCommitter, **thresholds: Any) -> LoadShedder:
    readers: Any = None
    given: Any = committer
    return LoadShedder(given, readers, Thresholds(push_depth_max=SLOTS, **thresholds))


def left(count: int) -> BacklogNumbers:
    return BacklogNumbers(1, count, None, None) if count else BacklogNumbers(None, 0, None, None)


async def test_a_full_backlog_is_drained_before_pushes_are_deferred_again() -> None:
    shedder = shedder_of(IdleCommitter())
    for _ in range(SLOTS):
        assert shedder.decide_push() is Decision.EXECUTE
        shedder.count_queued()
    assert shedder.depth == SLOTS
    assert shedder.decide_push() is Decision.REJECT
    for count in (SLOTS - 1, SLOTS // 2, int(DRAINED_SHARE * SLOTS) + 1):
        shedder._numbers, shedder._queued_since = left(count), 0
        assert shedder.depth == count
        assert shedder.decide_push() is Decision.REJECT, count
    shedder._numbers = left(int(DRAINED_SHARE * SLOTS))
    assert shedder.decide_push() is Decision.EXECUTE


async def test_a_push_rejected_while_draining_gets_the_time_until_it_is_drained() -> None:
    shedder = shedder_of(IdleCommitter())
    shedder.per_second = 10.0
    for _ in range(50):  # As many as are executed within push_wait_seconds_max.
        shedder.count_queued()
    assert shedder.decide_push() is Decision.REJECT
    assert shedder.retry_seconds == 5  # (50 - 0.05 * 50) / 10 = 4.75


async def test_after_a_burst_pushes_beyond_the_concurrency_limit_are_rejected() -> None:
    shedder = shedder_of(IdleCommitter())
    for _ in range(SLOTS):
        shedder.count_queued()
    assert shedder.decide_push() is Decision.REJECT
    shedder._numbers, shedder._queued_since = left(0), 0
    assert shedder.decide_push() is Decision.EXECUTE
    while not shedder.pushes.is_full:
        shedder.pushes.begin()
    # Not deferred, which would fill the backlog again.
    assert shedder.decide_push() is Decision.REJECT


async def test_a_load_above_the_threshold_is_busy_until_it_halves() -> None:
    committer = IdleCommitter()
    shedder = shedder_of(committer, busy_seconds=1.0, push_load_max=0.5)
    for waiting, verdict in ((0.5, "execute"), (0.51, "queue"), (0.26, "queue"), (0.24, "execute")):
        committer.waiting_seconds = waiting
        assert shedder.decide_push() == verdict, waiting


async def test_late_responses_reject_pushes_beyond_the_rate_in_time() -> None:
    committer = IdleCommitter(answer_seconds=0.2, last_count=200, normal_priority_count=100)
    shedder = shedder_of(committer, busy_seconds=0.1, push_load_max=1000)
    assert shedder.decide_push() is Decision.EXECUTE
    committer.normal_priority_count = 101
    assert shedder.decide_push() is Decision.REJECT
    committer.answer_seconds = 0.1
    assert shedder.decide_push() is Decision.EXECUTE


async def test_pops_are_rejected_by_the_urgent_queue_alone() -> None:
    committer = IdleCommitter(waiting_seconds=100.0)
    shedder = shedder_of(committer, busy_seconds=0.1, pop_load_max=10.0)
    assert shedder.decide_pop() is Decision.EXECUTE
    committer.high_priority_wait_seconds = 1.01
    assert shedder.decide_pop() is Decision.REJECT
