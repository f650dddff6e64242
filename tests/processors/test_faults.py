"""The faults, scenarios and races of the source, on real processes, with the delay shortened.

Processes are killed outright. Each story ends by itself: the order is completed once, not early,
and its bot is idle.
"""

import asyncio
import random
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx2
import pytest

from daybook.eventlog.postgres.embedded import running_conninfo
from daybook.processors.qstash.publisher import GRACE_SECONDS
from tests.conftest import reachable_directory
from tests.support.committer import rows
from tests.support.databases.tcp_proxy import Proxy
from tests.support.running.processes import SECONDS_MAX, eventually
from tests.support.running.service import (
    PROMPT_SECONDS,
    assert_consistent,
    busy_bots,
    completed,
    events,
    lateness,
)
from tests.support.running.service_process import ServiceProcess

pytestmark = pytest.mark.slow

FINALIZED = {"message": "Order already finalized"}


def is_complete(conninfo: str, order: Any) -> bool:
    return completed(conninfo) == [UUID(order["id"])]


def assert_ended_well(conninfo: str, orders_count: int = 1) -> None:
    """Each order complete once, not before its time; bots free; orders and bots agree."""
    done = completed(conninfo)
    assert len(done) == len(set(done)) == orders_count
    assert min(lateness(conninfo).values()) >= 0
    assert busy_bots(conninfo) == 0
    assert_consistent(conninfo)


def test_normal_flow_and_a_late_callback_that_changes_nothing(database: str) -> None:
    # S0-76 scenario 1, S0-25 fault 4 (a repeated claim), S0-83 late callback
    with ServiceProcess(database, delay_seconds=0.7) as server:
        order = server.cook()
        again = server.send("POST", f"/api/bots/{order['botId']}/claim")
        assert eventually(lambda: is_complete(database, order))
        late = server.call_back(order)
        shown = server.send("GET", f"/api/orders/{order['id']}").json()["order"]

    assert (again.status_code, again.json()["error"]) == (409, again.json()["detail"])
    assert (late.status_code, late.json()) == (200, FINALIZED)
    assert shown["status"] == "COMPLETE"
    assert lateness(database)[UUID(order["id"])] < PROMPT_SECONDS
    assert_ended_well(database)


def test_killed_while_cooking_and_back_in_time_the_order_is_complete_when_due(
    database: str,
) -> None:
    # S0-22 fault 1, S0-78 scenario 3, S0-71
    with ServiceProcess(database, delay_seconds=4) as server:
        order = server.cook()
        server.kill()
    with ServiceProcess(database, delay_seconds=4) as restarted:
        assert restarted.url
        assert eventually(lambda: is_complete(database, order))

    assert lateness(database)[UUID(order["id"])] < PROMPT_SECONDS
    assert_ended_well(database)


def test_killed_while_cooking_and_back_too_late_the_order_is_complete_at_once(
    database: str,
) -> None:
    # S0-44 timeline, S0-79 scenario 4, S0-22 fault 1, S0-24 fault 3, S0-45 row 4
    with ServiceProcess(database, delay_seconds=1) as server:
        order = server.cook()
        time.sleep(0.5)
        server.kill()
        with pytest.raises(httpx2.HTTPError):
            server.call_back(order)
    time.sleep(0.6)
    assert completed(database) == []

    with ServiceProcess(database, delay_seconds=1) as restarted:
        assert eventually(lambda: is_complete(database, order))
        assert restarted.call_back(order).json() == FINALIZED

    assert_ended_well(database)


def test_a_claim_whose_response_was_lost_still_ends(database: str) -> None:
    # S0-25 fault 4, S0-72
    with ServiceProcess(database, delay_seconds=0.5) as server:
        order_id, bot_id = server.order()["id"], server.bot()["id"]
        url = urlsplit(server.url)
        with socket.create_connection((url.hostname, url.port)) as connection:
            path = f"/api/bots/{bot_id}/claim"
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
            assert eventually(lambda: bool(events(database, "order.claimed")))
        assert eventually(lambda: completed(database) == [UUID(order_id)])

    assert_ended_well(database)


def test_of_a_callback_and_the_timer_at_the_same_moment_one_completes_the_order(
    database: str,
) -> None:
    # S0-83: double completion, double bot update; S0-77: the repeated call is a no-op
    with (
        ServiceProcess(database, delay_seconds=1) as one,
        ServiceProcess(database, delay_seconds=1) as other,
    ):
        assert other.url
        orders = [one.cook() for _ in range(8)]
        assert eventually(lambda: is_due(database, orders[0]))
        with ThreadPoolExecutor(4) as callers:
            calls = [
                callers.submit(server.call_back, order, f"{order['id']}-{server.process.pid}")
                for order in orders
                for server in (one, other)
            ]
        answers = [call.result() for call in calls]

        assert {answer.status_code for answer in answers} == {200}
        assert eventually(lambda: len(completed(database)) == 8)
        assert one.call_back(orders[0]).json() == FINALIZED

    done = completed(database)
    assert len(done) == len(set(done)) == 8
    assert busy_bots(database) == 0
    assert_consistent(database)


def is_due(conninfo: str, order: Any) -> bool:
    query = "SELECT clock_timestamp() >= %(due)s::timestamptz - interval '20 ms'"
    return bool(rows(conninfo, query, {"due": order["dueAt"]})[0][0])


def test_two_services_share_a_database_and_either_may_be_killed(database: str) -> None:
    # S0-06, S0-27, S0-81, S0-83 concurrent resume
    with (
        ServiceProcess(database, delay_seconds=1) as one,
        ServiceProcess(database, delay_seconds=1) as other,
    ):
        for server in (one, other) * 3:
            server.bot(autoClaim=True)
        for server in (one, other) * 6:
            server.order()
        one.kill()
        assert eventually(lambda: len(completed(database)) == 12)
        order_id = other.order("VIP")["id"]
        assert eventually(lambda: UUID(order_id) in completed(database))

    assert_ended_well(database, 13)


def test_after_any_history_orders_and_bots_agree(database: str) -> None:
    # S0-26 fault 5, S0-38, S0-39, S0-40, S0-45: the stuck states cannot be represented
    chance = random.Random(5)
    with (
        ServiceProcess(database, delay_seconds=0.2) as one,
        ServiceProcess(database, delay_seconds=0.2) as other,
    ):
        assert one.url
        assert other.url
        with ThreadPoolExecutor(4) as people:
            for server in (one, other) * 2:
                people.submit(make_trouble, server, random.Random(chance.random()))
            time.sleep(1.5)
            one.kill()
        assert other.send("DELETE", "/api/orders/clear").status_code == 200
        assert eventually(lambda: busy_bots(database) == 0)

    done = completed(database)
    assert done
    assert len(done) == len(set(done))
    assert_consistent(database)


def make_trouble(server: ServiceProcess, chance: random.Random) -> None:
    """Deletes claimed orders and their bots until the server ends."""
    bots: list[str] = []
    orders: list[str] = []
    until = time.monotonic() + 2.5
    try:
        for step in count():
            if time.monotonic() > until:
                return
            if step % 5 == 0:
                bots.append(server.bot(autoClaim=chance.random() < 0.5)["id"])
            orders.append(server.order(chance.choice(["VIP", "NORMAL"]))["id"])
            server.send("POST", f"/api/bots/{chance.choice(bots)}/claim")
            server.send("DELETE", f"/api/orders/{chance.choice(orders)}")
            if chance.random() < 0.3:
                server.send("DELETE", f"/api/bots/{chance.choice(bots)}")
    except httpx2.HTTPError:
        return


def test_with_its_scheduler_down_a_claim_succeeds_and_the_order_is_recovered(
    database: str,
) -> None:
    # S0-23 fault 2, S0-80 scenario 5, S0-45 row 5
    nowhere = {
        "APP_BASE_URL": "https://daybook.example",
        "QSTASH_URL": "http://127.0.0.1:9",
        "DAYBOOK_OUTBOUND_PRIVATE": "127.0.0.1",
        "QSTASH_TOKEN": "token",
        "QSTASH_CURRENT_SIGNING_KEY": "sig_" + "a" * 28,
        "QSTASH_NEXT_SIGNING_KEY": "sig_" + "b" * 28,
    }
    with ServiceProcess(database, delay_seconds=1, **nowhere) as server:
        order = server.cook()
        assert eventually(lambda: is_complete(database, order))
        assert "could not be scheduled: QStash cannot be reached" in server.output

    assert GRACE_SECONDS <= lateness(database)[UUID(order["id"])] < GRACE_SECONDS + 1
    assert_ended_well(database)


@contextmanager
def stopped(server: ServiceProcess) -> Iterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def test_a_server_that_is_stopped_in_its_tracks_holds_the_others_up_for_seconds_only(
    database: str,
) -> None:
    # D-05: it keeps the lock, and no other server waits for it
    with ServiceProcess(database, delay_seconds=0.5) as sleeper:
        assert sleeper.cook()
        assert eventually(lambda: len(completed(database)) == 1)
        with ServiceProcess(database, delay_seconds=0.5) as other:
            order = other.cook()
            with stopped(sleeper):
                assert eventually(lambda: UUID(order["id"]) in completed(database))
                assert other.order()
    assert lateness(database)[UUID(order["id"])] < 4
    assert_ended_well(database, 2)


@contextmanager
def between(conninfo: str) -> Iterator[Proxy]:
    """A proxy to the database, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = Proxy(conninfo)
    asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(SECONDS_MAX)
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_callback_that_fails_is_repeated_or_done_without(
    database: str, is_repeated: bool
) -> None:
    # S0-77 scenario 2, S0-24 fault 3
    delay_seconds = 60 if is_repeated else 1
    with (
        between(database) as proxy,
        ServiceProcess(proxy.conninfo, delay_seconds=delay_seconds) as server,
    ):
        order = server.cook()
        proxy.refusing = True
        rows(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        failed = server.call_back(order)
        proxy.refusing = False
        if is_repeated:
            assert server.call_back(order).json() == {"message": "Order completed"}
        assert eventually(lambda: is_complete(database, order))

    assert failed.status_code == 503
    (event,) = events(database, "order.completed")
    assert event[4]["via"] == ("callback" if is_repeated else "timer")
    assert busy_bots(database) == 0
    assert_consistent(database)


def test_a_service_killed_with_its_own_postgresql_completes_the_order_after_a_restart() -> None:
    # S0-22 fault 1, S0-44
    directory = reachable_directory()
    own = {"DATABASE_URL": "", "DAYBOOK_DATA_DIR": str(directory / "data")}
    try:
        with ServiceProcess("", delay_seconds=1, **own) as server:
            order = server.cook()
            server.kill()
        with ServiceProcess("", delay_seconds=1, **own) as restarted:
            assert restarted.url
            conninfo = running_conninfo(directory / "data")
            assert conninfo is not None
            assert eventually(lambda: is_complete(conninfo, order))
            assert_ended_well(conninfo)
    finally:
        shutil.rmtree(directory)
