"""The listening socket: bound first, or refused with one message."""

import errno
import os
import socket

import pytest

from daybook.api.server.listener import explain_bind_error, listen, url_of
from daybook.eventlog.errors import SetupError


def test_port_zero_takes_a_free_port_and_the_url_names_it() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]

        assert port != 0
        assert url_of(listener) == f"http://127.0.0.1:{port}"


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_the_url_of_an_ipv6_address_has_brackets() -> None:
    try:
        listener = listen("::1", 0)
    except SetupError:
        pytest.skip("this machine has no IPv6 loopback address")
    with listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


def test_an_occupied_port_is_refused() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(SetupError) as refused:
            listen("127.0.0.1", port)

    assert str(refused.value) == (
        f"Port {port} on 127.0.0.1 is already in use: "
        "stop the program that uses it, or choose another with --port."
    )


def test_an_unknown_host_is_refused() -> None:
    with pytest.raises(SetupError, match=r"The host nowhere\.invalid cannot be resolved"):
        listen("nowhere.invalid", 0)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EACCES, "Port 80 needs root privileges"),
        (errno.EADDRNOTAVAIL, "192.0.2.1 is not an address of this machine"),
        (errno.ENOBUFS, "Daybook cannot listen on port 80 of 192.0.2.1"),
    ],
)
def test_each_bind_error_has_its_own_message(number: int, sentence: str) -> None:
    error = OSError(number, os.strerror(number))

    assert explain_bind_error(error, "192.0.2.1", 80).startswith(sentence)
