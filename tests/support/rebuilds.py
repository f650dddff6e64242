"""Rebuilds as a test makes them, and an evening that leaves something of everything to rebuild."""

import random
from typing import Any

from daybook.domain.errors import Refusal
from daybook.domain.jobs.job import Job, UniqueScope
from daybook.domain.jobs.manage import CancelJob, ConfigureQueue, RetryJob
from daybook.domain.jobs.work import Outcome
from daybook.domain.orders.claim import CompletionMode
from daybook.domain.orders.commands import (
    DeleteOrder,
    FailOrder,
    ReleaseBot,
    RequeueOrder,
    RestoreOrder,
)
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.reading.follower import Follower
from daybook.projections.rebuild.comparison import Comparison
from daybook.projections.rebuild.rebuild import Rebuilt, rebuilding
from daybook.projections.rebuild.targets import MAPPER, TARGETS, Target
from daybook.projections.registry import READ_MODELS
from tests.support.committer import Submitter
from tests.support.jobs import QUEUE, Workshop, raw

ALL = [target.name for target in TARGETS]
READ_LOG = "SELECT * FROM stored_events ORDER BY notification_id"


class Unwatched:
    def begin(self, what: str) -> None: ...

    def reach(self, position: int, goal: int) -> None: ...


class Interrupting(Unwatched):
    """Stops a rebuild when it has come so far."""

    def __init__(self, position: int) -> None:
        self.seen: list[int] = []
        self._position = position

    def reach(self, position: int, goal: int) -> None:  # noqa: ARG002 (the protocol)
        self.seen.append(position)
        if position >= self._position:
            raise KeyboardInterrupt


def chosen(*names: str) -> list[Target]:
    return [target for target in TARGETS if target.name in (names or ALL)]


async def verify(conninfo: str, *names: str) -> dict[str, Comparison]:
    async with rebuilding(conninfo, Unwatched()) as rebuild:
        return {one.name: one for one in await rebuild.verify(chosen(*names))}


async def make_anew(conninfo: str, *names: str) -> dict[str, Rebuilt]:
    async with rebuilding(conninfo, Unwatched()) as rebuild:
        return {one.name: one for one in await rebuild.rebuild(chosen(*names))}


def found(rebuilt: dict[str, Rebuilt]) -> dict[str, Comparison]:
    return {name: one.found for name, one in rebuilt.items() if one.found is not None}


async def roll_back(conninfo: str, *names: str) -> list[str]:
    async with rebuilding(conninfo, Unwatched()) as rebuild:
        return [one.name for one in await rebuild.roll_back(chosen(*names))]


def wrong(comparisons: dict[str, Comparison]) -> list[str]:
    """Differences from the log, as an operator reads them."""
    return [str(one) for comparison in comparisons.values() for one in comparison.differences]


async def follow(conninfo: str) -> None:
    for model in READ_MODELS:
        follower = Follower(conninfo, model, MAPPER)
        await follower.catch_up()
        await follower.close()


class Evening:
    """Random commands on orders and jobs, with a seed."""

    def __init__(self, submitter: Submitter, seed: int = 7) -> None:
        self.submitter = submitter
        self.workshop = Workshop(submitter)
        self.chance = random.Random(seed)
        self.orders: list[Order] = []
        self.jobs: list[Job] = []

    async def go_on(self, count: int) -> None:
        bots = [await self.submitter.bot(CompletionMode.ACK) for _ in range(4)]
        for _ in range(count):
            deed = self.chance.choice(
                [self.order, self.cook, self.change, self.enqueue, self.work, self.decide]
            )
            try:
                await deed(bots)
            except Refusal:
                continue

    async def order(self, _bots: Any) -> None:
        self.orders.append(await self.submitter.order(self.chance.choice([*OrderKind])))

    async def cook(self, bots: Any) -> None:
        bot = self.chance.choice(bots)
        order = await self.submitter.claim(bot)
        assert order is None or order.claim is not None
        luck = self.chance.random()
        if order is None or luck < 0.3:
            return
        assert order.claim is not None
        if luck < 0.7:
            await self.submitter.complete(order)
        elif luck < 0.85:
            failed = FailOrder(
                order_id=order.id, claim_id=order.claim.id, error="burnt", retryable=luck < 0.8
            )
            await self.submitter.submit(failed)
        else:
            await self.submitter.submit(ReleaseBot(bot_id=bot.id))

    async def change(self, bots: Any) -> None:
        await self.submitter.submit(ReleaseBot(bot_id=self.chance.choice(bots).id))
        if self.orders:
            kind: Any = self.chance.choice([DeleteOrder, RestoreOrder, RequeueOrder])
            await self.submitter.submit(kind(order_id=self.chance.choice(self.orders).id))

    async def enqueue(self, _bots: Any) -> None:
        key = self.chance.choice([None, None, "a", "b"])
        fields: dict[str, Any] = {"type_": self.chance.choice(["send", "print"])}
        if key is not None:
            fields |= {"unique_key": key, "unique_scope": UniqueScope.UNFINISHED}
        fields["tags"] = self.chance.choice([(), ("vip",), ("eu", "vip")])
        payload = raw(str(self.chance.randrange(100)))
        self.jobs.append(await self.workshop.job(payload=payload, **fields))

    async def work(self, _bots: Any) -> None:
        for job in await self.workshop.claim(self.chance.randrange(1, 4)):
            if self.chance.random() < 0.8:
                outcome = self.chance.choice([*Outcome])
                until = job.created_at if outcome is Outcome.SNOOZE else None
                await self.workshop.finish(job, outcome, until=until, retry_delay_seconds=0)

    async def decide(self, _bots: Any) -> None:
        await self.submitter.submit(
            ConfigureQueue(name=QUEUE, concurrency=self.chance.randrange(9))
        )
        if self.jobs:
            kind: Any = self.chance.choice([CancelJob, RetryJob])
            await self.submitter.submit(kind(job_id=self.chance.choice(self.jobs).id))
