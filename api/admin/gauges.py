"""Prometheus metrics collected at scrape time, beside the counters of each module.

Database readings are cached for 5 seconds and omitted while the database cannot be read.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from time import monotonic

import psycopg
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from daybook.api.clock import now
from daybook.api.runtime.service import Service
from daybook.api.telemetry.request_metrics import RequestMetrics
from daybook.domain.deciders import DECIDERS
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.writing.histogram import Histogram
from daybook.projections.gauge_readings import Readings, take_readings

CACHE_SECONDS = 5.0
# Every topic starts at 0: Prometheus cannot see the increase of a counter that starts at 1.
ZERO_EVENTS = {kind.topic: 0 for decider in DECIDERS for kind in decider.events}


class Gauges(Collector):
    def __init__(self, service: Service, traffic: RequestMetrics) -> None:
        self._service, self._traffic = service, traffic
        self._readings: Readings | None = None
        self._read_at = -CACHE_SECONDS
        self._read_lock = asyncio.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    async def text(self) -> bytes:
        async with self._read_lock:
            if monotonic() - self._read_at >= CACHE_SECONDS:
                self._readings = await self._read()
                self._read_at = monotonic()
        return generate_latest(self._registry)

    async def _read(self) -> Readings | None:
        try:
            off = self._service.followers_off
            return await self._service.read(partial(take_readings, followers_off=off))
        except (psycopg.Error, OSError, TimeoutError, UnavailableError):
            return None

    def collect(self) -> Iterable[Metric]:
        yield from self._of_requests()
        yield from self._of_committer()
        is_up = GaugeMetricFamily(
            "daybook_database_up", "Whether the last database reading succeeded."
        )
        is_up.add_metric([], self._readings is not None)
        yield is_up
        if self._readings is not None:
            yield from _of_log(self._readings)
            yield from _of_queues(self._readings)
            yield _of_bots(self._readings)

    def _of_requests(self) -> Iterable[Metric]:
        answers = CounterMetricFamily(
            "daybook_http_requests",
            "Requests by route and status.",
            labels=["route", "status"],
        )
        for (route, status), count in self._traffic.answers.items():
            answers.add_metric([route, str(status)], count)
        yield answers
        yield _histogram(
            "daybook_http_seconds",
            "Request duration.",
            self._traffic.seconds,
            label="route",
        )

    def _of_committer(self) -> Iterable[Metric]:
        committer = self._service.committer
        events = CounterMetricFamily(
            "daybook_events", "Events recorded by this process.", labels=["topic"]
        )
        for topic, count in {**ZERO_EVENTS, **committer.events_count}.items():
            events.add_metric([topic], count)
        yield events
        waiting = GaugeMetricFamily("daybook_commands_waiting", "Commands waiting for a batch.")
        waiting.add_metric([], committer.waiting_count)
        yield waiting
        sizes = {"": committer.batch_sizes}
        yield _histogram("daybook_batch_commands", "Commands per batch.", sizes)
        waits = {"": committer.waits}
        yield _histogram("daybook_wait_seconds", "Time that commands waited for a batch.", waits)


def _of_log(readings: Readings) -> Iterable[Metric]:
    position = GaugeMetricFamily("daybook_log_position", "Last position of the log.")
    position.add_metric([], readings.position)
    yield position
    lag = GaugeMetricFamily(
        "daybook_follower_lag", "Positions a follower has yet to read.", labels=["follower"]
    )
    for name, reached in readings.followers.items():
        lag.add_metric([name], max(0, readings.position - reached))
    yield lag
    late = GaugeMetricFamily(
        "daybook_follower_lag_seconds",
        "Age of the oldest event a follower has yet to read.",
        labels=["follower"],
    )
    for name, seconds in readings.unread_seconds.items():
        late.add_metric([name], max(0.0, seconds))
    yield late
    ahead = GaugeMetricFamily(
        "daybook_follower_ahead",
        "Positions by which a follower's cursor is ahead of the log: it would skip them.",
        labels=["follower"],
    )
    for name, positions in readings.ahead.items():
        ahead.add_metric([name], positions)
    yield ahead
    epoch = GaugeMetricFamily(
        "daybook_log_epoch", "Number of log epochs: each failover or restore starts one."
    )
    epoch.add_metric([], readings.epoch)
    yield epoch
    age = GaugeMetricFamily(
        "daybook_horizon_age_seconds", "Time the oldest open transaction has held back the horizon."
    )
    age.add_metric([], readings.horizon_age_seconds)
    yield age
    quarantined = GaugeMetricFamily(
        "daybook_quarantined",
        "Aggregates with an event that cannot be read: detected, or set aside by an operator.",
        labels=["status"],
    )
    quarantined.add_metric(["detected"], readings.detected_count)
    quarantined.add_metric(["set_aside"], readings.set_aside_count)
    yield quarantined


def _of_queues(readings: Readings) -> Iterable[Metric]:
    depth = GaugeMetricFamily(
        "daybook_queue_depth",
        "Jobs by queue and status, orders and operations; counted up to 1,000 of each type.",
        labels=["kind", "queue", "status"],
    )
    age = GaugeMetricFamily(
        "daybook_queue_age_seconds",
        "Age of the oldest ready job, order or operation.",
        labels=["kind", "queue"],
    )
    depth.add_metric(["order", "", "pending"], readings.orders_pending)
    age.add_metric(["order", ""], _age(readings.orders_oldest_at))
    depth.add_metric(["operation", "", "pending"], readings.operations.depth)
    depth.add_metric(["operation", "", "failed"], readings.failed_operations.count)
    age.add_metric(["operation", ""], _age(readings.operations.oldest_at))
    for queue in readings.queues:
        for status in ("pending", "scheduled", "behind", "processing", "dead"):
            depth.add_metric(["job", queue.name, status], getattr(queue, status))
        age.add_metric(["job", queue.name], _age(queue.oldest_pending_at))
    yield depth
    yield age


def _of_bots(readings: Readings) -> Metric:
    bots = GaugeMetricFamily(
        "daybook_bots",
        "Bots by status; dead means out of service after too many failures in a row.",
        labels=["status"],
    )
    for status, count in readings.bots.items():
        bots.add_metric([status], count)
    return bots


def _age(since: datetime | None) -> float:
    return 0.0 if since is None else max(0.0, (now() - since).total_seconds())


def _histogram(
    name: str, text: str, meters: Mapping[str, Histogram], label: str | None = None
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=[label] if label else [])
    for value, meter in meters.items():
        total, buckets = 0, []
        bounds = [*(f"{bound:g}" for bound in meter.bounds), "+Inf"]
        for bound, count in zip(bounds, meter.counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric([value] if label else [], buckets, sum_value=meter.sum)
    return family
