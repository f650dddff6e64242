"""From settings to a service that answers, and back to nothing when it is told to stop.

Owns the order: the address first, because a taken one is found at once, then the database, then
the service; and all of it backwards at the end.
"""

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
import uvloop
from starlette.applications import Starlette

from api.app import create_app
from api.database import Say, own_database, prepare
from api.listening import listen, url_of
from api.service import Service
from api.settings import Settings
from api.stopping import StopSignals
from eventlog.committer import DEADLINE_SECONDS

# A command is answered by its deadline, whatever happens; a second more for the answer's way.
FINISH_SECONDS_MAX = int(DEADLINE_SECONDS) + 1


class Server(uvicorn.Server):
    """uvicorn without signals of its own, which it would raise again when all is over."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    def stop(self) -> None:
        """Asked once, requests that are under way finish; asked twice, they are dropped."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_started()


def serve(settings: Settings, signals: StopSignals, *, say: Say, announce: Say) -> None:
    """Returns when it was told to stop; `announce` gets the address once it is up."""
    with (
        listen(settings.host, settings.port) as listener,
        own_database(settings, say) as conninfo,
    ):
        prepare(conninfo)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(conninfo, listener, signals, lambda: announce(url_of(listener))))


async def _serve(
    conninfo: str,
    listener: socket.socket,
    signals: StopSignals,
    on_started: Callable[[], None],
) -> None:
    service = Service(conninfo)
    server = Server(_uvicorn_config(create_app(service)), on_started)
    signals.hand_to(server.stop)
    async with service:
        # What is there now stays: the collector need not look through it again and again, which
        # made a pause of 30 ms now and then.
        gc.collect()
        gc.freeze()
        await server.serve(sockets=[listener])


def _uvicorn_config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        # Starting and stopping is ours: uvicorn would skip the stop when it is hurried.
        lifespan="off",
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=FINISH_SECONDS_MAX,
    )
