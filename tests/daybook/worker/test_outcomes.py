"""Translation of a handler's outcome into a result, without clock or network."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import decode, encode

from daybook import Backoff, ClaimedJob, Fail, FollowUp, JobStatus, Retry, Snooze
from daybook.worker.handlers import ERROR_CHARACTERS_MAX, Handler, is_async

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_job(**more: Any) -> ClaimedJob:
    usual: dict[str, Any] = {
        "id": UUID(int=1),
        "claim_id": UUID(int=2),
        "queue": "email",
        "type": "greet",
        "status": JobStatus.PROCESSING,
        "created_at": NOW,
        "lease_until": NOW + timedelta(seconds=90),
        "attempts": 1,
    }
    return ClaimedJob(**{**usual, **more})


def make_handler(**more: Any) -> Handler:
    return Handler(type="greet", function=lambda _job: None, is_async=False, **more)


def not_done(error: BaseException, job: ClaimedJob | None = None, **handler: Any) -> dict[str, Any]:
    result = make_handler(**handler).not_done(
        job or make_job(), error, chance=random.Random(7), now=NOW
    )
    report: dict[str, Any] = decode(encode(result))
    return report


def done(value: Any, **handler: Any) -> dict[str, Any]:
    report: dict[str, Any] = decode(encode(make_handler(**handler).done(make_job(), value)))
    return report


def test_a_value_is_the_result() -> None:
    assert done({"sent": True}) == {
        "id": str(UUID(int=1)),
        "claimId": str(UUID(int=2)),
        "outcome": "done",
        "result": {"sent": True},
    }


def test_an_exception_means_to_try_again() -> None:
    result = not_done(ConnectionError("No route."))

    assert (result["outcome"], result["error"]) == ("retry", "ConnectionError: No route.")
    assert "retryAfterSeconds" not in result


def test_a_job_says_itself_when_to_try_again() -> None:
    result = not_done(Retry("The register is closed.", after=30))

    assert (result["outcome"], result["error"]) == ("retry", "The register is closed.")
    assert result["retryAfterSeconds"] == 30


@pytest.mark.parametrize("after", [-1, 1e300, float("nan"), float("inf")])
def test_a_job_is_tried_again_in_this_life(after: float) -> None:
    with pytest.raises(ValueError, match="Retry takes"):
        Retry(after=after)


def test_an_error_whose_text_cannot_be_read_is_reported_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert not_done(Mute())["error"] == "Mute"


def test_trying_again_at_once_is_not_trying_again_some_time() -> None:
    assert not_done(Retry(after=0), backoff=Backoff())["retryAfterSeconds"] == 0


def test_a_job_that_can_never_be_done_fails_for_good() -> None:  # S4-29
    result = not_done(Fail("There is no such address."), backoff=Backoff())

    assert (result["outcome"], result["error"]) == ("fail", "There is no such address.")


def test_a_job_that_is_not_due_is_put_off_by_the_clock_of_the_service() -> None:  # S4-32
    assert not_done(Snooze(seconds=90)) == {
        "id": str(UUID(int=1)),
        "claimId": str(UUID(int=2)),
        "outcome": "snooze",
        "until": "2026-03-01T12:01:30Z",
    }
    assert not_done(Snooze(until=NOW))["until"] == "2026-03-01T12:00:00Z"


def test_putting_off_does_not_count_as_an_attempt() -> None:
    assert not_done(Snooze(seconds=1), make_job(attempts=3), attempts_max=3)["outcome"] == "snooze"


def test_a_job_is_put_off_either_for_a_time_or_until_one() -> None:
    naive = NOW.replace(tzinfo=None)
    wrongs: list[dict[str, Any]] = [
        {},
        {"seconds": 1, "until": NOW},
        {"until": naive},
        {"seconds": -1},
        {"seconds": 1e300},
        {"seconds": float("nan")},
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="Snooze takes"):
            Snooze(**wrong)


@pytest.mark.parametrize(
    ("attempts", "outcome"), [(1, "retry"), (2, "retry"), (3, "fail"), (4, "fail")]
)
def test_the_last_attempt_of_a_type_is_final(attempts: int, outcome: str) -> None:
    result = not_done(OSError("Down."), make_job(attempts=attempts), attempts_max=3)

    assert result["outcome"] == outcome
    if outcome == "fail":
        assert result["error"] == f"OSError: Down. (attempt {attempts} of 3)"


def test_a_type_may_rest_in_its_own_way_after_each_failure() -> None:  # S1-22, S1-23
    backoff, chance = Backoff(base_seconds=0.2, cap_seconds=1), random.Random(7)
    handler = make_handler(backoff=backoff)

    for failures, limit in enumerate([0.2, 0.4, 0.8, 1, 1]):
        job = make_job(failures=failures)
        rests = [
            handler.not_done(job, OSError(), chance=chance, now=NOW).retry_after_seconds
            for _ in range(200)
        ]
        assert all(rest is not None and 0 <= rest <= limit for rest in rests)
        assert max(rest or 0 for rest in rests) > 0.9 * limit


def test_the_same_chance_gives_the_same_rests() -> None:
    series = [
        [Backoff().seconds(n, chance) for n in range(1, 9)]
        for chance in (random.Random(7), random.Random(7))
    ]

    assert series[0] == series[1]


@given(st.integers(min_value=1, max_value=10**9))
def test_a_rest_is_never_longer_than_the_cap(failures_count: int) -> None:
    assert 0 <= Backoff().seconds(failures_count, random.Random(7)) <= 300


def test_a_job_follows_with_the_subject_and_the_result() -> None:  # S4-12
    handler = make_handler(then="send_invoice_ready")

    result = handler.done(make_job(subject="booking-42"), {"number": 7})

    (follow_up,) = decode(encode(result))["then"]
    assert follow_up == {
        "type": "send_invoice_ready",
        "subject": "booking-42",
        "payload": {"number": 7},
    }


def test_a_function_chooses_the_follow_ups() -> None:
    result = done(2, then=lambda _job, value: (FollowUp(type=f"part_{n}") for n in range(value)))

    assert [one["type"] for one in result["then"]] == ["part_0", "part_1"]


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize("value", [object(), {1: object()}, "\ud800", CIRCULAR], ids=type)
def test_a_result_that_cannot_be_encoded_fails_the_job(value: Any) -> None:
    with pytest.raises(Fail, match="cannot be written as JSON"):
        done(value)
    with pytest.raises(Fail, match="cannot be written as JSON"):
        done(None, then=lambda _job, _value: [FollowUp(type="next", payload=value)])
    with pytest.raises(Fail, match="cannot be written as JSON"):
        done(None, then=lambda _job, _value: [FollowUp(type=value)])


def test_a_result_is_written_once() -> None:
    assert isinstance(make_handler().done(make_job(), [1]).result, Raw)


@given(st.text(st.characters(exclude_categories=()), max_size=3000))
def test_every_error_can_be_stored(text: str) -> None:
    error = not_done(ValueError(text))["error"]

    assert len(error) <= ERROR_CHARACTERS_MAX
    assert "\0" not in error


def test_an_object_may_be_a_handler() -> None:
    class Greeter:
        async def __call__(self, job: ClaimedJob) -> None: ...

    async def greet(job: ClaimedJob) -> None: ...

    assert is_async(Greeter())
    assert is_async(greet)
    assert not is_async(print)
    assert not is_async(lambda _job: None)
