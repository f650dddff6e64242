"""Both clients with lost, late, refused and invalid responses."""

import random
import time
from collections.abc import Iterator

import pytest

from daybook import (
    Client,
    Refused,
    ServerFault,
    Unavailable,
)
from daybook.client.responses import Answer, error_of, retry_after_seconds
from daybook.client.transport import RetryState
from tests.support.fake_address import Address
from tests.support.fake_service import Fault, StandIn

SHORT_SECONDS = 0.5


def test_a_write_whose_response_was_lost_happens_once(client: Client, standin: StandIn) -> None:
    standin.faults.append(Fault("/api/jobs", after_effect=True))

    job = client.enqueue("email", "greet")

    assert list(standin.jobs) == [str(job.id)]
    first, second = standin.seen
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_every_write_has_a_key_of_its_own(client: Client, standin: StandIn) -> None:
    client.enqueue("email", "greet")
    client.enqueue("email", "greet")

    assert len({seen.headers["idempotency-key"] for seen in standin.seen}) == 2


def test_requests_that_are_safe_to_repeat_have_no_idempotency_key(
    client: Client, standin: StandIn
) -> None:
    job_id = standin.add()["id"]
    (job,) = client.claim(["email"], worker_id="w1")
    client.heartbeat(job)
    client.heartbeat_many([job])
    client.get(job_id)

    assert not [seen for seen in standin.seen if "idempotency-key" in seen.headers]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 599])
def test_transient_statuses_are_retried(client: Client, standin: StandIn, status: int) -> None:
    # S3-52: every 5xx
    standin.faults += [Fault("/api/queues", status=status, content=b"<html>")] * 2

    assert client.queues() == []
    assert len(standin.seen) == 3


def test_a_retry_waits_at_least_for_retry_after(client: Client, standin: StandIn) -> None:
    # S3-04, D-53: who was turned away does not add to the load.
    # Others were in the way: nothing was done, and a second later it may be.
    content = b'{"code": "conflict", "detail": "Send it again."}'
    standin.faults.append(Fault("/api/jobs", 409, {"Retry-After": "1"}, content))

    client.enqueue("email", "greet")

    first, second = standin.seen
    assert 1 <= second.at - first.at < 1.4


def test_a_retry_after_beyond_the_limit_fails_at_once(client: Client, standin: StandIn) -> None:
    content = b'{"code": "unavailable", "detail": "The database is away."}'
    standin.faults.append(Fault("/api/jobs", 503, {"Retry-After": "60"}, content))
    began = time.monotonic()

    with pytest.raises(Unavailable) as raised:
        client.enqueue("email", "greet")

    assert time.monotonic() - began < 1
    assert (raised.value.code, raised.value.retry_after_seconds) == ("unavailable", 60)
    assert str(raised.value) == "The database is away."


def test_an_unreachable_service_is_unavailable() -> None:
    with (
        Client("http://127.0.0.1:1", retry_seconds_max=SHORT_SECONDS) as client,
        pytest.raises(Unavailable) as raised,
    ):
        client.queues()

    assert raised.value.code == "unreachable"
    assert "http://127.0.0.1:1" in str(raised.value)


def test_rests_grow_and_end_with_the_time_limit() -> None:
    # S3-04, D-53: nor do all come back at the same moment.
    chance, failure = random.Random(7), Unavailable("Away.", code="unavailable")

    def rests() -> Iterator[float]:
        tries = RetryState(3600, chance)
        while True:
            yield tries.retry_delay_seconds(failure)

    for series in [rests() for _ in range(50)]:
        limits = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        assert all(0 <= next(series) <= limit for limit in limits)
    with pytest.raises(Unavailable):
        RetryState(0, chance).retry_delay_seconds(failure)


def test_a_retry_after_date_is_measured_by_the_server_date() -> None:
    # S3-53, D-53: seconds, or an HTTP-date.
    headers = {
        "date": "Wed, 21 Oct 2015 07:28:00 GMT",
        "retry-after": "Wed, 21 Oct 2015 07:28:30 GMT",
    }

    assert retry_after_seconds(headers) == 30
    assert retry_after_seconds({"retry-after": headers["retry-after"]}) is None
    assert retry_after_seconds({"retry-after": "soon"}) is None
    assert retry_after_seconds({"retry-after": "2"}) == 2


def test_an_internal_error_is_raised_after_the_last_retry(address: Address) -> None:
    # S3-52: the same key each time, so that a command before a defect is not executed twice.
    content = b'{"code": "internal_error", "detail": "This is a defect."}'
    standin = address.standin
    standin.faults += [Fault("/api/jobs", 500, content=content)] * 100

    with (
        Client(address.url, retry_seconds_max=SHORT_SECONDS) as client,
        pytest.raises(ServerFault, match=r"This is a defect\."),
    ):
        client.enqueue("email", "greet")

    assert len(standin.seen) > 1
    assert len({seen.headers["idempotency-key"] for seen in standin.seen}) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 422])
def test_a_refused_request_is_sent_once(client: Client, standin: StandIn, status: int) -> None:
    # S3-52: other 4xx are not tried again.
    content = b'{"code": "no", "detail": "No."}'
    standin.faults += [Fault("/api/jobs", status, content=content)] * 2

    with pytest.raises(Refused):
        client.enqueue("email", "greet")

    assert len(standin.seen) == 1


@pytest.mark.parametrize("content", [b"<html>", b"{}", b'{"queues": 1}', b"\xff"])
def test_an_answer_that_cannot_be_read_is_an_error_of_the_service(
    client: Client, standin: StandIn, content: bytes
) -> None:
    standin.faults.append(Fault("/api/queues", 200, content=content))

    with pytest.raises(ServerFault) as raised:
        client.queues()

    assert raised.value.code == "unreadable_answer"


def test_an_answer_without_a_reason_is_still_a_sentence() -> None:
    error = error_of(Answer(418, {}, b"\xff"))

    assert isinstance(error, Refused)
    assert (error.code, str(error)) == ("http_418", "The response was 418, without a reason.")
