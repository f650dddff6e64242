"""Every way in which a command comes into the service, driven with values of its own types."""

import asyncio
import math
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

import daybook
from daybook.api.admin.openapi import describe
from daybook.api.app import ROUTES, App
from daybook.api.keys.key_admin import ApiKeyAdmin
from daybook.api.runtime.load_shedding import Thresholds
from daybook.api.runtime.service import Service
from daybook.api.server.listener import listen
from daybook.domain.api_keys.commands import IssueKey, RevokeKey, RotateKey
from daybook.domain.command import Command, CommandPriority, Needs, UnitOfWork, priority_of
from daybook.domain.errors import Refusal
from daybook.domain.schedules.commands import FireSchedule
from daybook.domain.upstreams.commands import RecordJob
from daybook.errors import DaybookError
from daybook.eventlog.origin import Origin
from daybook.eventlog.writing.committer import Committer
from daybook.processors.registry import all_processors
from daybook.processors.upstreams.feeds import Feed
from daybook.processors.upstreams.feeds import Mapping as FieldMapping
from daybook.processors.upstreams.poller import Upstreams
from tests.support.asgi_client import GUEST_KEY, Api, some_settings
from tests.support.described_values import INSTANTS, NUMBERS, PAYLOADS, TEXTS, DescribedValues
from tests.support.running.feeds import Upstream
from tests.support.running.nearby import NEARBY
from tests.support.running.socket_server import listening

MANY = 1_000_000
FEED_SECONDS = 3.0
SEEN_MAX = 400
WAYS = ("http", "push", "sdk", "enqueue", "schedules", "follow-ups", "upstream", "keys")
# All pushes are accepted for later, and carried out by a processor.
BUSY = Thresholds(busy_seconds=10, push_load_max=1e-9, pop_load_max=100)
# Routes that start a process of their own, or are about a browser's session.
LEFT_OUT = ("/api/rebuilds", "/api/doctor", "/login", "/logout", "/api/rebuilds/stop")
# A GET that claims messages.
POP = "/api/v1/pop/"
WAITS = ("waitSeconds", "timeout")

FAR = timezone(timedelta(hours=14))
MOMENTS = (
    datetime(1, 1, 1, tzinfo=FAR),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-14))),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 3, 1),  # noqa: DTZ001 (a mistake that callers make)
    datetime(2026, 3, 1, tzinfo=UTC),
    datetime(9998, 12, 31, tzinfo=UTC),
)
ANY_NUMBER = st.sampled_from([*NUMBERS, 3, 5, math.nan, math.inf, 1e18, 30.0, 0.5, True, "7"])
ANY_TEXT = st.sampled_from([*TEXTS, "email", "send", "x" * 201, "x" * 100_000, "a\0b", 7])
ANY_PAYLOAD = st.sampled_from([*PAYLOADS, math.nan, {1}, "y" * 3_000_000, "a\0b", [[]] * 3])


def strange(fields: Mapping[str, st.SearchStrategy[Any]], **usual: Any) -> st.SearchStrategy[Any]:
    """Keyword arguments, the usual ones as a rule, some of them as no type would allow."""
    optional = {name: one for name, one in fields.items() if name not in usual}
    required = {
        name: st.just(value) | st.just(value) | fields[name] for name, value in usual.items()
    }
    return st.fixed_dictionaries(required, optional=optional)


SEEDS = st.integers(0, 2**32)
Draw = Callable[..., Any]
Act = Coroutine[Any, Any, None]

JOB_ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "queue": ANY_TEXT,
    "type": ANY_TEXT,
    "payload": ANY_PAYLOAD,
    "priority": ANY_NUMBER,
    "subject": ANY_TEXT,
    "unique_key": ANY_TEXT,
    "unique_scope": st.sampled_from(["forever", "unfinished", "sometimes", 7]),
    "on_dead": st.sampled_from(["return", "restart", "bury", 7]),
    "attempts_max": ANY_NUMBER,
    "lease_seconds": ANY_NUMBER,
    "run_at": st.sampled_from(MOMENTS),
    "partition": ANY_TEXT,
    "tags": st.lists(ANY_TEXT, max_size=3) | st.just(["vip", "eu"]) | ANY_TEXT,
}


class Chance(random.Random):
    def half(self) -> bool:
        return self.random() < 0.5

    def mostly(self) -> bool:
        return self.random() < 0.8


class Seen:
    """Objects from the service's answers: the source of ids, claims and names."""

    def __init__(self) -> None:
        self._objects: deque[dict[str, Any]] = deque(maxlen=SEEN_MAX)
        self.by_kind: dict[str, deque[str]] = {}

    def collect(self, answer: Any, kind: str = "") -> None:
        if isinstance(answer, list):
            for one in answer:
                self.collect(one, kind.removesuffix("s"))
        elif isinstance(answer, dict):
            self._objects.append(answer)
            if isinstance(one := answer.get("id"), str):
                self.by_kind.setdefault(kind, deque(maxlen=SEEN_MAX)).append(one)
            for name, value in answer.items():
                self.collect(value, name)

    def like(self, names: set[str], chance: "Chance") -> dict[str, Any]:
        """Something that was answered and has members of these names; empty if nothing has."""
        fitting = [
            one for one in self._objects if any(isinstance(one.get(name), str) for name in names)
        ]
        return chance.choice(fitting[-40:]) if fitting else {}


class Operation:
    """An operation of the API, as its description says."""

    def __init__(self, method: str, path: str, described: Mapping[str, Any]) -> None:
        self.method, self.path = method.upper(), path
        content = described.get("requestBody", {}).get("content", {})
        self.body: Mapping[str, Any] | None = content.get("application/json", {}).get("schema")
        self.in_path, self.in_query = (
            {
                one["name"]: one["schema"]
                for one in described.get("parameters", ())
                if one["in"] == location
            }
            for location in ("path", "query")
        )

    @property
    def way(self) -> str:
        return "push" if self.path.startswith("/api/v1/") else "http"

    @property
    def kind(self) -> str:
        """The kind of thing that an id in the path names."""
        before, _, _ = self.path.partition("/{id}")
        return before.rpartition("/")[2].removesuffix("s")


class Later:
    """A command that is decided some minutes from now."""

    def __init__(self, command: Command[Any]) -> None:
        self._command = command

    @property
    def needs(self) -> Needs:
        return self._command.needs

    @property
    def priority(self) -> CommandPriority:
        return priority_of(self._command)

    def decide(self, work: UnitOfWork) -> Any:
        return self._command.decide(LaterDesk(work))


class LaterDesk:
    def __init__(self, work: UnitOfWork) -> None:
        self._desk = work
        self.now = work.now + timedelta(minutes=2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._desk, name)


class DrivenService:
    """A service that is driven from all sides, and the requests it was sent."""

    def __init__(
        self,
        conninfo: str,
        *,
        calm: Api,
        busy: Api,
        client: daybook.AsyncClient,
        feed: Upstream,
    ) -> None:
        described = describe(ROUTES)
        self.conninfo, self.calm, self.client, self.feed = conninfo, calm, client, feed
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.operations = [
            Operation(method, path, one)
            for path, methods in described["paths"].items()
            for method, one in methods.items()
            if (method != "get" or path.startswith(POP)) and path not in LEFT_OUT
        ]
        self.reads = [path for path, methods in described["paths"].items() if "get" in methods]
        self.seen = Seen()
        self._busy = busy
        self._values = DescribedValues(described["components"]["schemas"])

    @property
    def answers(self) -> Counter[tuple[str, int]]:
        """The number of answers by route and status, those to the SDK's requests included."""
        answers: Counter[tuple[str, int]] = Counter()
        for api in (self.calm, self._busy):
            assert isinstance(api.app, App)
            answers += api.app.traffic.answers
        return answers

    # Each way draws all its values first, and then acts, so no drawn value depends on an answer of
    # the service. A value that does is chosen by a Chance whose seed was drawn.

    def http(self, draw: Draw, operation: Operation | None = None) -> Act:
        one = operation or draw(st.sampled_from(self.operations))
        names = {name: draw(self._values.of(schema)) for name, schema in one.in_path.items()}
        query = draw(self._values.of({"type": "object", "properties": one.in_query}))
        body = None if one.body is None else draw(self._values.of(one.body))
        return self._http(one, names, query if one.in_query else {}, body, Chance(draw(SEEDS)))

    async def _http(
        self,
        one: Operation,
        names: Mapping[str, Any],
        query: Mapping[str, Any],
        body: Any,
        chance: "Chance",
    ) -> None:
        known = self.seen.like({"claimId", "leaseId"}, chance)
        tied = {name: self._tied(one, name, drawn, known, chance) for name, drawn in names.items()}
        api = self._busy if one.way == "push" and chance.half() else self.calm
        sent = self._filled(body, known, chance)
        self.counts[one.way] += 1
        self.counts[f"{one.method} {one.path}"] += 1
        path = one.path.format(**tied) + _query(query, waits=one.in_query.keys() & {*WAITS})
        await self.ask(api, one.method, path, sent)

    async def ask(self, api: Api, method: str, path: str, body: Any) -> Any:
        """The answer, if it is a good one; a fault is noted."""
        try:
            answer = await api.ask(method, path, body)
        except Exception as error:
            # The application answers with 500, and raises the error that a server would log.
            self.faults.append(f"{error!r} to {method} {path} {str(body)[:500]}")
            return None
        if answer.status >= 500:
            self.faults.append(f"{answer.body[:300]!r} to {method} {path} {str(body)[:500]}")
        if answer.status >= 300 or answer.headers.get("content-type") != "application/json":
            return None
        self.seen.collect(answer.json)
        return answer.json

    def _tied(
        self, one: Operation, name: str, drawn: Any, known: Mapping[str, Any], chance: "Chance"
    ) -> str:
        """An id as a rule of something that there is."""
        found = self.seen.by_kind.get(one.kind)
        if name == "id" and one.kind == "job" and known.get("claimId") and chance.half():
            return str(known.get("id") or drawn)
        if name == "id" and found and chance.mostly():
            return str(chance.choice([*found]))
        value = self.seen.like({name}, chance).get(name) if chance.mostly() else None
        return quote(str(value or drawn), safe="") or "x"

    def _filled(self, value: Any, known: Mapping[str, Any], chance: "Chance") -> Any:
        """The body, with ids and claims that the service has answered, and without long waits."""
        if isinstance(value, list):
            return [self._filled(one, known, chance) for one in value]
        if not isinstance(value, dict):
            return value
        filled = {name: self._filled(one, known, chance) for name, one in value.items()}
        for name in filled.keys() & {*known, "jobId"}:
            source = known.get("id") if name == "jobId" else known[name]
            if name.endswith("Id") and isinstance(source, str) and chance.mostly():
                filled[name] = source
        if "queues" in filled and chance.half():
            filled["queues"] = ["email", "mail"]
        return {name: 0 if name in WAITS else one for name, one in filled.items()}

    def sdk(self, draw: Draw) -> Act:
        arguments = draw(strange(JOB_ARGUMENTS, queue="email", type="send"))
        result, until = draw(ANY_PAYLOAD), draw(st.sampled_from(MOMENTS))
        return self._sdk(arguments, result, until if draw(st.booleans()) else None)

    async def _sdk(self, arguments: Any, result: Any, until: datetime | None) -> None:
        self.counts["sdk"] += 1
        try:
            await self.client.enqueue(**arguments)
            self.counts["sdk taken"] += 1
            for one in await self.client.claim(["email"], worker_id="sdk"):
                if until is None:
                    await self.client.complete(one, result)
                else:
                    await self.client.snooze(one, until)
        except (DaybookError, ValueError, TypeError) as error:
            if isinstance(error, daybook.ServerFault) or (getattr(error, "status", 0) or 0) >= 500:
                self.faults.append(f"{error!r} to {str(arguments)[:500]}")

    def enqueue(self, draw: Draw) -> Act:
        fields = {**JOB_ARGUMENTS, "actor": ANY_TEXT}
        return self._enqueue(draw(strange(fields, queue="email", type="send", actor="enqueue")))

    async def _enqueue(self, arguments: Any) -> None:
        self.counts["enqueue"] += 1
        async with await psycopg.AsyncConnection.connect(self.conninfo) as connection:
            try:
                async with connection.transaction():
                    await daybook.enqueue_async(connection, **arguments)
            except (DaybookError, Refusal, ValueError, TypeError):
                return
            self.counts["enqueue taken"] += 1

    def follow_ups(self, draw: Draw) -> Act:
        """A job is created, claimed, and completed with jobs that follow it."""
        (operation,) = (one for one in self.operations if one.path == "/api/jobs/{id}/complete")
        assert operation.body is not None
        return self._follow_ups([draw(self._values.of(operation.body)) for _ in range(3)])

    async def _follow_ups(self, bodies: Sequence[dict[str, Any]]) -> None:
        self.counts["follow-ups"] += 1
        await self.ask(self.calm, "POST", "/api/jobs", {"queue": "email", "type": "send"})
        wish = {"queues": ["email"], "workerId": "w", "limit": len(bodies)}
        claimed = await self.ask(self.calm, "POST", "/api/jobs/claim", wish) or {"jobs": []}
        for job, body in zip(claimed["jobs"], bodies, strict=False):
            path = f"/api/jobs/{job['id']}/complete"
            self.counts["follow-ups"] += 1
            await self.ask(self.calm, "POST", path, {**body, "claimId": job["claimId"]})

    def schedules(self, draw: Draw) -> Act:
        """A schedule with a job of any kind fires: its time is brought forward."""
        (operation,) = (
            one for one in self.operations if (one.method, one.path) == ("POST", "/api/schedules")
        )
        assert operation.body is not None
        return self._schedules({**draw(self._values.of(operation.body)), "cron": "* * * * *"})

    async def _schedules(self, body: dict[str, Any]) -> None:
        self.counts["schedules"] += 1
        made = await self.ask(self.calm, "POST", "/api/schedules", body)
        if made is None:
            return
        with suppress(Refusal):
            origin = Origin(command_id=uuid7(), actor="system:schedules")
            fire = Later(FireSchedule(name=body["name"]))
            await self.calm.service.committer.submit(fire, origin)
            self.counts["schedules fired"] += 1

    def keys(self, draw: Draw) -> Act:
        name = "k" + draw(st.uuids()).hex[:11]
        reason = draw(st.sampled_from([None, *TEXTS]))
        issue = IssueKey(
            name=name,
            scopes=("client",),
            digest="0" * 64,
            holder=draw(st.sampled_from(TEXTS)),
            reason=reason,
            # The command line gives every instant a zone.
            expires_at=draw(st.sampled_from([None, *(one for one in MOMENTS if one.tzinfo)])),
        )
        seconds = draw(st.sampled_from([0.0, 1e18, 3600.0]))
        rotate = RotateKey(name=name, digest="1" * 64, overlap_seconds=seconds)
        return self._keys([issue, rotate, RevokeKey(name=name, reason=reason or "over")])

    async def _keys(self, commands: Sequence[Command[Any]]) -> None:
        async with ApiKeyAdmin(self.conninfo, actor="operator:test") as smith:
            for command in commands:
                self.counts["keys"] += 1
                with suppress(Refusal, ValueError):
                    await smith.submit(command)

    async def a_round(self) -> None:
        """Acts that chance alone seldom brings about: an order by hand, a lease that runs out, a
        push that is accepted for later, a feed that fails and loses a record."""
        bot, order = await self.calm.bot(), await self.calm.order()
        path = f"/api/orders/{order['id']}"
        await self.ask(self.calm, "PATCH", path, {"status": "PROCESSING", "botId": bot["id"]})
        await self.ask(self.calm, "PATCH", path, {"status": "PENDING"})
        await self.ask(self.calm, "PATCH", path, {"status": "PROCESSING", "botId": bot["id"]})
        await self.ask(self.calm, "PATCH", path, {"status": "COMPLETE"})
        await self.ask(self.calm, "DELETE", "/api/orders/clear", None)
        for change in ({"failuresMax": 3}, {"status": "IDLE"}):
            await self.ask(self.calm, "PATCH", f"/api/bots/{bot['id']}", change)
        location = {"slug": "trattoria", "name": "Trattoria", "tokenPrefix": "DEMO123"}
        await self.ask(self.calm, "POST", "/api/restaurants", location)
        guest = {"name": "Ada Lovelace", "mobileNumber": "+491701234567", "partySize": 2}
        await self.ask(self.calm, "POST", "/api/restaurants/trattoria/tickets", guest)
        job = {"queue": "brief", "type": "send", "leaseSeconds": 0.05}
        await self.ask(self.calm, "POST", "/api/jobs", job)
        wish = {"queues": ["brief"], "workerId": "w", "limit": 1}
        await self.ask(self.calm, "POST", "/api/jobs/claim", wish)
        for number in range(3):
            item = {"queue": "mail", "partition": "p", "payload": number}
            await self.ask(self._busy, "POST", "/api/v1/push", {"items": [item]})
        self.feed.troubles.clear()
        self.feed.add(1000, 1001)
        await asyncio.sleep(FEED_SECONDS)
        self.feed.records.pop(1000)
        self.feed.fail(500, b"no")
        await asyncio.sleep(FEED_SECONDS)

    def upstream(self, draw: Draw) -> Act:
        """Records of any kind, some that vanish, and a feed that fails."""
        number = draw(st.integers(1, 50))
        record = {
            "id": number,
            "version": draw(st.sampled_from([1, 2, 2**63 - 1, "3", None, "x" * 300, 1e308])),
            "deleted_at": draw(st.sampled_from([None, *INSTANTS])),
            "name": draw(st.sampled_from([*PAYLOADS, *TEXTS])),
        }
        return self._upstream(number, record, Chance(draw(SEEDS)))

    async def _upstream(self, number: int, record: dict[str, Any], chance: "Chance") -> None:
        self.counts["upstream"] += 1
        self.feed.records[number] = record
        # One failure at a time: acts are faster than polls, which would meet nothing but failures.
        match chance.randrange(10):
            case 0 if not self.feed.troubles:
                self.feed.fail(500, b"no")
            case 1 if not self.feed.troubles:
                self.feed.fail(200, b"not json", Content_Type="application/json")
            case 2:
                self.feed.records.pop(chance.choice([*self.feed.records]))


def _query(values: Mapping[str, Any], *, waits: Set[str]) -> str:
    """The query of an address, with every wait set to 0."""
    sent = {**values, **dict.fromkeys(waits, 0)}
    texts = {
        name: str(one).lower() if one is True or one is False else one for name, one in sent.items()
    }
    return f"?{urlencode(texts)}" if texts else ""


@contextmanager
def counting_commands() -> Iterator[Counter[str]]:
    """Which commands reach a committer of this process, by the names of their types."""
    counts: Counter[str] = Counter()
    submit = Committer.submit

    def counted(self: Committer, command: Any, *rest: Any, **named: Any) -> Any:
        waiting = [command]
        while waiting:
            one = waiting.pop()
            counts[type(one).__name__] += 1
            waiting += [*getattr(one, "commands", ())]
            waiting += [one.command] if hasattr(one, "command") else []
            waiting += [one._command] if isinstance(one, Later) else []
        return submit(self, command, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Committer, "submit", counted)
        yield counts


@asynccontextmanager
async def open_driven_service(conninfo: str, feed: Upstream) -> AsyncIterator[DrivenService]:
    """A service with everything that works by itself, one that is busy, and a client's socket."""
    job = RecordJob(queue="pos", type="sync", tags=("stock",))
    mapping = FieldMapping(items="data", version="version", deleted="deleted_at")
    upstreams = Upstreams(
        {
            "stock": Feed(
                url=feed.url, every_seconds=1, mapping=mapping, job=job, reconcile_seconds=0.5
            )
        },
        NEARBY,
    )
    settings = some_settings(requests_per_address_max=MANY, tickets_per_mobile_max=1000)
    calm = Service(conninfo, guest_key=GUEST_KEY, processors=all_processors(upstreams=upstreams))
    busy = Service(conninfo, guest_key=GUEST_KEY, processors=(), read_models=(), thresholds=BUSY)
    with listen("127.0.0.1", 0) as listener:
        async with calm, busy:
            api = Api(App(calm, settings), calm)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with listening(api, listener), daybook.AsyncClient(url) as client:
                other = Api(App(busy, settings), busy)
                yield DrivenService(conninfo, calm=api, busy=other, client=client, feed=feed)
