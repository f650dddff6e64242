"""Baseline: the event library with its own Application, Aggregates and PostgreSQL recorder.

Every caller claims the order that it created, because the library cannot search for the most
urgent one.
"""

import threading
import time
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from psycopg.conninfo import conninfo_to_dict

from bench.harness.rounds import Round


class LibraryOrder(Aggregate):
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.status = "PENDING"
        self.bot_id: UUID | None = None

    @event("Claimed")
    def claim(self, bot_id: UUID) -> None:
        self.status, self.bot_id = "PROCESSING", bot_id

    @event("Completed")
    def complete(self) -> None:
        self.status, self.bot_id = "COMPLETE", None


class LibraryBot(Aggregate):
    def __init__(self) -> None:
        self.order_id: UUID | None = None

    @event("Claimed")
    def claim(self, order_id: UUID) -> None:
        self.order_id = order_id

    @event("Completed")
    def complete(self) -> None:
        self.order_id = None


class Library:
    """Callers are threads, because the library is synchronous."""

    def __init__(self, conninfo: str) -> None:
        given = conninfo_to_dict(conninfo)
        self._application: Application[UUID] = Application(
            env={
                "PERSISTENCE_MODULE": "eventsourcing.postgres",
                "POSTGRES_DBNAME": str(given["dbname"]),
                "POSTGRES_HOST": str(given.get("host", "")),
                "POSTGRES_PORT": str(given.get("port", "")),
                "POSTGRES_USER": str(given.get("user", "")),
                "POSTGRES_PASSWORD": str(given.get("password", "-")),
                "POSTGRES_POOL_SIZE": "4",
                "POSTGRES_MAX_OVERFLOW": "30",
            }
        )

    def close(self) -> None:
        self._application.close()

    def run(self, callers: int, seconds: float) -> Round:
        latencies: list[list[float]] = [[] for _ in range(callers)]
        deadline = time.perf_counter() + seconds
        threads = [threading.Thread(target=self._caller, args=(own, deadline)) for own in latencies]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        taken = [latency for own in latencies for latency in own]
        return Round(count=len(taken) // 3, seconds=took, latencies=taken)

    def _caller(self, latencies: list[float], deadline: float) -> None:
        bot = LibraryBot()
        self._application.save(bot)
        while time.perf_counter() < deadline:
            for step in self._life_cycle(bot.id):
                began = time.perf_counter()
                step()
                latencies.append(time.perf_counter() - began)

    def _life_cycle(self, bot_id: UUID) -> list[Any]:
        order = LibraryOrder("NORMAL")

        def create() -> None:
            self._application.save(order)

        def claim() -> None:
            mine, bot = self._load(order.id, bot_id)
            mine.claim(bot_id)
            bot.claim(order.id)
            self._application.save(mine, bot)

        def complete() -> None:
            mine, bot = self._load(order.id, bot_id)
            mine.complete()
            bot.complete()
            self._application.save(mine, bot)

        return [create, claim, complete]

    def _load(self, order_id: UUID, bot_id: UUID) -> tuple[Any, Any]:
        repository = self._application.repository
        return repository.get(order_id), repository.get(bot_id)
