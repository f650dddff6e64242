"""Where a stand-in listens, over real connections."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from tests.support.fake_service import StandIn


class Address:
    """The address of a stand-in, which can close and open again with its state."""

    def __init__(self, standin: StandIn) -> None:
        self.standin = standin
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        config = uvicorn.Config(
            self.standin,
            port=self.port,
            lifespan="off",
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def close(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.force_exit = self._server.should_exit = True
            self._thread.join()
            self._server = None


@contextmanager
def stand_in() -> Iterator[Address]:
    address = Address(StandIn())
    address.open()
    try:
        yield address
    finally:
        address.close()
