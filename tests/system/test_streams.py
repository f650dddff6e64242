"""Streams of a real process: over a network, through a disconnect, and when it is told to stop."""

import json
import signal
import time
from http.client import HTTPConnection, HTTPResponse

from tests.support.running.processes import SECONDS_MAX
from tests.support.running.serving import Serving


def open_stream(
    serving: Serving, after: int | str | None = None
) -> tuple[HTTPConnection, HTTPResponse]:
    connection = HTTPConnection(*serving.address, timeout=SECONDS_MAX)
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


def create_order(serving: Serving) -> int:
    """Returns the position of its event."""
    connection = HTTPConnection(*serving.address, timeout=SECONDS_MAX)
    body, headers = json.dumps({"type": "VIP"}), {"Content-Type": "application/json"}
    connection.request("POST", "/api/orders", body, headers)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    position = int(answer.headers["Daybook-Position"])
    connection.close()
    return position


def test_a_browser_that_comes_back_goes_on_where_it_was(own_serving: Serving) -> None:
    assert own_serving.becomes(200)
    connection, answer = open_stream(own_serving)
    first = create_order(own_serving)
    told, name = next_block(answer)[:2]
    assert (told.partition("-")[0], name) == (f"id: {first}", "event: order")
    connection.close()
    second = create_order(own_serving)
    connection, answer = open_stream(own_serving, after=told.removeprefix("id: "))
    assert next_block(answer)[0].startswith(f"id: {second}-")
    connection.close()


def test_open_streams_do_not_keep_it_from_stopping(own_serving: Serving) -> None:
    assert own_serving.becomes(200)
    streams = [open_stream(own_serving) for _ in range(3)]
    began = time.monotonic()

    assert own_serving.signal_and_wait(signal.SIGTERM) == 0

    assert time.monotonic() - began < 5
    assert "Traceback" not in own_serving.output
    for connection, answer in streams:
        assert next_block(answer) == [": The service stops."]
        assert answer.read() == b""
        connection.close()
