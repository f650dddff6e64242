"""Starts the service from its settings, and stops it in reverse order.

The socket opens first, because an occupied port fails at once; then the database; then the service.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp

from daybook.api.app import App
from daybook.api.keys.bootstrap_key import AdminKey, make_first_key
from daybook.api.orders.callback_signatures import standard_keys
from daybook.api.runtime.guest_master_key import ServiceKey, guest_key
from daybook.api.runtime.load_shedding import Thresholds
from daybook.api.runtime.service import Service
from daybook.api.server.connections import Connections
from daybook.api.server.database import Say, explain_database_errors, own_database, prepare
from daybook.api.server.listener import listen, url_of
from daybook.api.server.protocol import protocol_of
from daybook.api.server.signals import StopSignals
from daybook.api.settings.settings import Settings
from daybook.api.settings.validation import refuse_exposed_open_mode
from daybook.api.telemetry.structured_log import json_logging
from daybook.api.telemetry.tracing import Traced, exporting
from daybook.eventlog.errors import DiskFullSetupError
from daybook.eventlog.gc_tuning import tune_gc
from daybook.eventlog.transfer.import_log import refuse_unfinished_import
from daybook.eventlog.writing.committer import DEADLINE_SECONDS
from daybook.processors.outbound.http import Outbound
from daybook.processors.outbound.ssrf_guard import read_private
from daybook.processors.processor import OrderRules, RetentionRules
from daybook.processors.qstash.client import QStash
from daybook.processors.upstreams.feeds import read_feeds
from daybook.processors.upstreams.poller import Upstreams
from daybook.processors.webhooks.webhook import Webhook

DISK_FULL_RETRY_SECONDS = 3.0
# Each command is answered by its deadline; one more second sends the response.
FINISH_SECONDS_MAX = int(DEADLINE_SECONDS) + 1


class Server(uvicorn.Server):
    """uvicorn without its signal handlers, which would raise the signal again after the stop."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    def stop(self) -> None:
        """The first call lets running requests finish; the second drops them."""
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
    """Runs until a stop signal; calls `announce` with the URL once the service is up. Retries while
    the disk is full, so that the service starts once an operator has freed space."""
    refuse_exposed_open_mode(settings)
    while True:
        try:
            _serve_once(settings, signals, say=say, announce=announce)
        except DiskFullSetupError as error:
            say(
                f"{error.disk} is full: free some space. "
                f"Retrying in {DISK_FULL_RETRY_SECONDS:.0f} s."
            )
            # A stop signal interrupts it.
            time.sleep(DISK_FULL_RETRY_SECONDS)
        else:
            return


def _serve_once(settings: Settings, signals: StopSignals, *, say: Say, announce: Say) -> None:
    with listen(settings.host, settings.port) as listener, own_database(settings, say) as conninfo:
        prepare(conninfo)
        refuse_unfinished_import(conninfo)
        admin_key = None if settings.auth == "open" else make_first_key(conninfo, settings.data_dir)
        with explain_database_errors(conninfo):
            key = guest_key(settings, conninfo)
        with (
            exporting(settings.otel_endpoint) as tracer,
            json_logging(),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(
                _serve(
                    settings,
                    tracer=tracer,
                    conninfo=conninfo,
                    key=key,
                    listener=listener,
                    signals=signals,
                    announce=lambda url: _announce(announce, say, url, admin_key),
                )
            )


def thresholds_of(settings: Settings) -> Thresholds:
    names = Thresholds.__struct_fields__
    return Thresholds(**{name: getattr(settings, name) for name in names})


def order_rules_of(settings: Settings) -> OrderRules:
    return OrderRules(
        delay_seconds=settings.processing_delay_seconds, aging_seconds=settings.vip_aging_seconds
    )


def retention_rules_of(settings: Settings) -> RetentionRules:
    return RetentionRules(idempotency_keep_days=settings.idempotency_keep_days)


def outbound_of(settings: Settings) -> Outbound:
    return Outbound(read_private(settings.outbound_private))


def _qstash(settings: Settings, outbound: Outbound) -> QStash | None:
    if settings.qstash_token is None:
        return None
    assert settings.qstash_url is not None
    assert settings.callback_url is not None
    return QStash(
        base_url=settings.qstash_url,
        token=settings.qstash_token,
        callback_url=settings.callback_url,
        outbound=outbound,
    )


def _announce(announce: Say, say: Say, url: str, admin_key: AdminKey | None) -> None:
    announce(url)
    if admin_key is not None:
        for line in admin_key.lines(url):
            say(line)


def _upstreams(settings: Settings, outbound: Outbound) -> Upstreams | None:
    feeds = read_feeds(settings.upstreams)
    private = read_private(settings.outbound_private)
    for name, feed in feeds.items():
        private.refuse_plain(f"The url of {name} in DAYBOOK_UPSTREAMS", feed.url)
    return Upstreams(feeds, outbound) if feeds else None


def _webhook(settings: Settings, outbound: Outbound) -> Webhook | None:
    if settings.notify_url is None:
        return None
    assert settings.notify_secrets is not None
    secrets = standard_keys(settings.notify_secrets)
    return Webhook(settings.notify_url, secrets, outbound=outbound)


async def _serve(
    settings: Settings,
    *,
    tracer: Any,
    conninfo: str,
    key: ServiceKey | None,
    listener: socket.socket,
    signals: StopSignals,
    announce: Say,
) -> None:
    outbound = outbound_of(settings)
    service = Service(
        conninfo,
        order_rules=order_rules_of(settings),
        retention_rules=retention_rules_of(settings),
        qstash=_qstash(settings, outbound),
        callback_grace_seconds=settings.qstash_grace_seconds,
        upstreams=_upstreams(settings, outbound),
        with_keys=settings.auth == "keys",
        guest_key=key,
        webhook=_webhook(settings, outbound),
        thresholds=thresholds_of(settings),
    )
    app = App(service, settings)
    config = uvicorn_config(app, app if tracer is None else Traced(app, tracer))
    server = Server(config, lambda: announce(url_of(listener)))

    def stop() -> None:
        # The server waits for every response, and streams and long polls do not end by themselves.
        service.tail.end()
        service.job_waiters.end()
        server.stop()

    signals.hand_to(stop)
    async with service:
        tune_gc()
        await server.serve(sockets=[listener])


def uvicorn_config(app: App, wrapped_app: ASGIApp | None = None) -> uvicorn.Config:
    """`wrapped_app`, if given, is the application behind middleware such as tracing."""
    return uvicorn.Config(
        wrapped_app or app,
        http=protocol_of(Connections(app.settings)),
        ws="none",
        # `_serve` starts and stops the service: uvicorn skips the shutdown on a forced exit.
        lifespan="off",
        server_header=False,
        # api/settings/networks.py decides which proxies are trusted.
        proxy_headers=False,
        access_log=False,
        # uvicorn's records go through the handlers of structured_log.py.
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=FINISH_SECONDS_MAX,
    )
