"""Both addresses of a client and a worker: that of a service, and that of its database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg.conninfo import conninfo_to_dict

from daybook import Worker
from daybook.api.app import App
from daybook.api.runtime.service import Service
from daybook.api.server.listener import listen
from tests.support.asgi_client import Api, some_settings
from tests.support.running.socket_server import listening


def url_of(conninfo: str) -> str:
    given = conninfo_to_dict(conninfo)
    return f"postgresql://{given['user']}@/{given['dbname']}?host={given['host']}"


@asynccontextmanager
async def http_url(conninfo: str) -> AsyncIterator[str]:
    with listen("127.0.0.1", 0) as listener:
        async with Service(conninfo) as service:
            api = Api(App(service, some_settings()), service)
            async with listening(api, listener):
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
                service.job_waiters.end()


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    serving = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        worker.stop()
        await serving
