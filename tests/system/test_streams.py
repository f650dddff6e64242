"""Streams of a real process: over a network, through a disconnect, and at its stop."""

import signal
import time
from http.client import HTTPConnection, HTTPResponse

from tests.support.running.processes import SECONDS_MAX
from tests.support.running.service_process import ServiceWithPostgres


def open_stream(
    service: ServiceWithPostgres, after: int | str | None = None
) -> tuple[HTTPConnection, HTTPResponse]:
    connection = HTTPConnection(*service.address, timeout=SECONDS_MAX)
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    connection.request("GET", "/api/stream", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    assert next_block(answer)[0].startswith("retry: ")
    return connection, answer


def next_block(answer: HTTPResponse) -> list[str]:
    lines: list[str] = []
    while line := answer.readline().decode().rstrip("\n"):
        lines.append(line)
    return lines


def create_order(service: ServiceWithPostgres) -> int:
    """Returns the position of its event."""
    answer = service.send("POST", "/api/orders", {"type": "VIP"})
    assert answer.status_code == 201, answer.text
    return int(answer.headers["Daybook-Position"])


def test_a_browser_that_comes_back_goes_on_where_it_was(own_service: ServiceWithPostgres) -> None:
    assert own_service.becomes(200)
    connection, answer = open_stream(own_service)
    first = create_order(own_service)
    result, name = next_block(answer)[:2]
    assert (result.partition("-")[0], name) == (f"id: {first}", "event: order")
    connection.close()
    second = create_order(own_service)
    connection, answer = open_stream(own_service, after=result.removeprefix("id: "))
    assert next_block(answer)[0].startswith(f"id: {second}-")
    connection.close()


def test_open_streams_do_not_keep_it_from_stopping(own_service: ServiceWithPostgres) -> None:
    assert own_service.becomes(200)
    streams = [open_stream(own_service) for _ in range(3)]
    began = time.monotonic()

    assert own_service.signal_and_wait(signal.SIGTERM) == 0

    assert time.monotonic() - began < 5
    assert "Traceback" not in own_service.output
    for connection, answer in streams:
        assert next_block(answer) == [": The service stops."]
        assert answer.read() == b""
        connection.close()
