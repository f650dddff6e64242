"""`daybook rebuild` beside a running service, which it never disturbs."""

import asyncio
import random
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from getpass import getuser
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from daybook.api.server.signals import StopSignals
from daybook.cli.main import CliContext, cli
from daybook.eventlog.errors import SetupError
from tests.support.committer import rows
from tests.support.running.processes import DaybookProcess, daybook
from tests.support.running.service_process import ServiceWithPostgres

pytestmark = pytest.mark.anyio

QUEUE = "bookings"
LINES = 6
# A connection that the service may be about to close for being idle is not used again.
LIMITS = httpx2.Limits(keepalive_expiry=2)


class Load:
    """Guests, bots, those who enqueue jobs and do them, and those who only look.

    Every answer is checked, and each unexpected one is recorded.
    """

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.complaints: list[str] = []
        self.answers_count = 0
        self.slowest_seconds = 0.0
        self._client = client
        self._over = asyncio.Event()

    def end(self) -> None:
        self._over.set()

    async def run(self) -> None:
        deeds = [self._cook, self._work, self._watch_orders, self._watch_jobs] * LINES
        await asyncio.gather(*(self._repeat(deed, client) for client, deed in enumerate(deeds)))

    async def _repeat(self, deed: Any, client: int) -> None:
        while not self._over.is_set():
            await deed(client)

    async def _ask(self, method: str, path: str, body: Any = None, expected: int = 200) -> Any:
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._client.request(method, f"/api{path}", json=body)
        except httpx2.HTTPError as error:
            self.complaints.append(f"{method} {path}: {error!r}")
            return {}
        seconds = asyncio.get_running_loop().time() - began
        self.answers_count += 1
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        if answer.status_code != expected:
            self.complaints.append(f"{method} {path}: {answer.status_code} {answer.text}")
            return {}
        return answer.json()

    async def _cook(self, _line: int) -> None:
        bot = await self._ask("POST", "/bots", {"completion": "ack"}, 201)
        for _ in range(5):
            await self._ask("POST", "/orders", {"type": "NORMAL"}, 201)
            claimed = await self._ask("POST", f"/bots/{bot['bot']['id']}/claim")
            if order := claimed.get("order"):
                done = {"status": "COMPLETE", "claimId": order["claimId"]}
                await self._ask("PATCH", f"/orders/{order['id']}", done)
        await self._ask("DELETE", f"/bots/{bot['bot']['id']}")

    async def _work(self, client: int) -> None:
        queue = f"{QUEUE}-{client}"
        created = {"jobs": [{"queue": queue, "type": "confirm"} for _ in range(5)]}
        await self._ask("POST", "/jobs", created, 201)
        wanted = {"queues": [queue], "workerId": "w", "limit": 4}
        claimed = (await self._ask("POST", "/jobs/claim", wanted)).get("jobs", [])
        claims = [{"id": job["id"], "claimId": job["claimId"]} for job in claimed]
        heartbeats = await self._ask("POST", "/jobs/heartbeat", {"claims": claims})
        if heartbeats and heartbeats["lost"]:
            self.complaints.append(f"lost {heartbeats['lost']}")
        results = [{**claim, "outcome": "done"} for claim in claims]
        answered = await self._ask("POST", "/jobs/results", {"results": results})
        if any("code" in one for one in answered.get("results", [])):
            self.complaints.append(f"results {answered}")

    async def _watch_orders(self, _line: int) -> None:
        """An order is in the list from when it is created until it is deleted, all the time."""
        order = (await self._ask("POST", "/orders", {"type": "VIP"}, 201)).get("order")
        if order is None:
            return
        for _ in range(3):
            listed = await self._ask("GET", "/orders?limit=500")
            await self._ask("GET", f"/orders/{order['id']}")
            ids = [one["id"] for one in listed.get("orders", [])]
            if listed and not listed["nextCursor"] and order["id"] not in ids:
                self.complaints.append(f"order {order['id']} has vanished")
        await self._ask("DELETE", f"/orders/{order['id']}")

    async def _watch_jobs(self, client: int) -> None:
        """A queue that no other client uses."""
        queue = f"watched-{client}"
        new = {"queue": queue, "type": "confirm"}
        job = (await self._ask("POST", "/jobs", new, 201)).get("job")
        if job is None:
            return
        await self._is_listed(queue, "PENDING", job["id"])
        claim = {"queues": [queue], "workerId": "w"}
        (claimed,) = (await self._ask("POST", "/jobs/claim", claim)).get("jobs") or [None]
        if claimed is None or claimed["id"] != job["id"]:
            self.complaints.append(f"job {job['id']} was not there to be claimed")
            return
        await self._is_listed(queue, "PROCESSING", job["id"])
        done = {"claimId": claimed["claimId"]}
        await self._ask("POST", f"/jobs/{job['id']}/complete", done)
        await self._is_listed(queue, "COMPLETED", job["id"])

    async def _is_listed(self, queue: str, status: str, job_id: str) -> None:
        listed = await self._ask("GET", f"/jobs?queue={queue}&status={status}&limit=5")
        if listed and job_id not in [job["id"] for job in listed["jobs"]]:
            self.complaints.append(f"{status} job {job_id} has vanished")


@asynccontextmanager
async def under_load(service: ServiceWithPostgres) -> AsyncIterator[Load]:
    async with httpx2.AsyncClient(
        base_url=service.url, timeout=30, limits=LIMITS, trust_env=False
    ) as client:
        load = Load(client)
        running = asyncio.create_task(load.run())
        try:
            yield load
        finally:
            load.end()
            await running


async def rebuild(
    service: ServiceWithPostgres, *arguments: str
) -> subprocess.CompletedProcess[str]:
    data_dir = ("--data-dir", str(service.data_dir))
    return await asyncio.to_thread(daybook, "rebuild", *arguments, *data_dir)


def ask(conninfo: str, *arguments: str) -> Result:
    """The command in this process."""
    invoked = ["rebuild", *arguments, "--database-url", conninfo]
    return CliRunner().invoke(cli, invoked, obj=CliContext(StopSignals()))


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ([], "Name one or more of orders, bots"),
        (["nothing"], "There is no nothing: name one of orders, bots"),
        (["orders", "--all"], "Name one or more of orders, bots"),
        (["--all", "--verify-only", "--rollback"], "exclude each other"),
        (["--all", "--verify-only", "--reason", "why"], "no --reason to record"),
        (["--all", "--reason", ""], "1 to 500 characters on one line"),
        (["--all", "--reason", "two\nlines"], "1 to 500 characters on one line"),
    ],
)
def test_rebuild_needs_names_or_all(said: list[str], answer: str) -> None:
    result = ask("", *said)
    assert (result.exit_code, answer in result.stderr) == (2, True)


def test_equal_projections_are_counted_with_exit_code_0(own_database: str) -> None:
    result = ask(own_database, "--all", "--verify-only")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "finished_orders: 0 rows, as the log says\n" in result.stdout


# SX-02 SX-05
def test_a_row_that_was_changed_by_hand_is_found_with_exit_code_1_and_repaired(
    own_database: str,
) -> None:
    rows(own_database, "INSERT INTO job_types VALUES ('email', 'never')")

    found = ask(own_database, "jobs", "--verify-only")
    assert (found.exit_code, "daybook rebuild jobs" in found.stderr) == (1, True)
    assert found.stdout == (
        "jobs: 0 rows by the log, 1 wrong:\n"
        "  job_types, queue email, type never: should not be there\n"
    )
    repaired = ask(own_database, "jobs")
    assert (repaired.exit_code, "1 wrong, repaired" in repaired.stdout) == (0, True)
    assert ask(own_database, "jobs", "--verify-only").exit_code == 0
    assert ask(own_database, "--rollback").exit_code == 0
    assert ask(own_database, "jobs", "--verify-only").exit_code == 1


def test_the_log_records_operator_projections_and_reason_of_a_rebuild(own_database: str) -> None:
    # N10
    assert ask(own_database, "bots", "--reason", "A row was changed by hand.").exit_code == 0
    shown = ["log", "--topic", "rebuild.", "--database-url", own_database]
    result = CliRunner().invoke(cli, shown, obj=CliContext(StopSignals()))
    created, completed = result.stdout.splitlines()
    assert "rebuild.created" in created
    assert f"operator:{getuser()}" in created
    assert "because='A row was changed by hand.'" in created
    assert "rebuild.completed" in completed


def test_a_failed_rebuild_is_reported_in_one_sentence(own_database: str) -> None:
    result = ask(own_database, "--rollback")
    assert isinstance(result.exception, SetupError)
    assert str(result.exception).endswith("a rebuild to roll back to.")


@pytest.mark.slow
async def test_a_rebuild_under_load_does_not_disturb_requests(
    own_service: ServiceWithPostgres,
) -> None:
    assert own_service.becomes(200)
    async with under_load(own_service) as load:
        await asyncio.sleep(2)
        for arguments in (["--all"], ["--all", "--verify-only"], ["--rollback"], ["--all"]):
            done = await rebuild(own_service, *arguments)
            assert done.returncode == 0, done
    assert load.complaints == []
    assert load.slowest_seconds < 3
    assert (await rebuild(own_service, "--all", "--verify-only")).returncode == 0
    print(f"{load.answers_count} answers, the slowest after {load.slowest_seconds:.2f} s")


@pytest.mark.slow
async def test_killed_at_any_moment_it_leaves_the_running_tables_right_and_goes_on_later(
    own_service: ServiceWithPostgres,
) -> None:
    assert own_service.becomes(200)
    arguments = ("rebuild", "--all", "--data-dir", own_service.data_dir)
    chance = random.Random(7)
    async with under_load(own_service) as load:
        for _ in range(12):
            with DaybookProcess(*arguments) as process:
                await asyncio.sleep(chance.uniform(0.3, 3.0))
                process.kill()
        done = await rebuild(own_service, "--all")
        assert done.returncode == 0, done
        assert "wrong" not in done.stdout
    assert load.complaints == []
    assert (await rebuild(own_service, "--all", "--verify-only")).returncode == 0
