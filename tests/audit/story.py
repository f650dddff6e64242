"""A good history, made by the real committer, and ways to spoil it.

Everything that orders, bots and jobs can go through happens in it. At its end some are left in
every state, under a name, so that a bad history needs only one more event.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Raw, Struct, json
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from audit.entries import Entry
from audit.invariant import Case
from audit.runner import Finding, check
from audit.service import Kept, Service
from audit.world import World
from domain.bot import Bot
from domain.claim import CompletedVia, CompletionMode
from domain.desk import Command
from domain.job import Job, UniqueScope
from domain.kitchen import (
    AssignOrder,
    Claimed,
    ClaimOrder,
    CompleteOrder,
    CreateBot,
    CreateOrder,
    DeleteBot,
    DeleteOrder,
    FailOrder,
    ReleaseBot,
    ReleaseOrder,
    RequeueOrder,
    RestoreOrder,
)
from domain.claim import ReleaseReason
from domain.order import Order, OrderKind
from domain.workshop import (
    CancelJob,
    ClaimJobs,
    ConfigureQueue,
    CreateJobs,
    ExpireLease,
    FinishJobs,
    NewJob,
    Outcome,
    Result,
    RetryJob,
    Selector,
)
from eventlog.committer import Committer
from eventlog.database import reader_conninfo
from eventlog.origin import Origin, Receipt
from tests.workshop import new_job

OPEN = "open"
COMPLETIONS, RECOVERY, DISPATCH = "system:completions", "system:recovery", "system:dispatch"
LEASES = "system:leases"
# Long enough for a few commands, short enough to be waited for.
SOON = 0.02
LATER = 600.0


class Log(list[Entry]):
    """A log in memory."""

    part_read = 0.0


class Story(Struct):
    """A log, its receipts, and the names of those who are in some state at its end."""

    log: Log
    receipts: list[tuple[UUID, int | None]]
    cast: dict[str, UUID]

    def copy(self) -> "Story":
        return Story(Log(self.log), [*self.receipts], self.cast)

    def find(self, topic: str, nth: int = 0, **fields: Any) -> int:
        """The place of an event, by its topic and what it says."""
        found = [
            place
            for place, entry in enumerate(self.log)
            if entry.topic == topic and fields.items() <= said(entry).items()
        ]
        return found[nth]

    def last_of(self, name: str) -> int:
        aggregate = self.cast[name]
        return max(n for n, entry in enumerate(self.log) if entry.aggregate == aggregate)

    def edit(self, place: int, **envelope: Any) -> None:
        self.log[place] = replace(self.log[place], **envelope)

    def say(self, place: int, **fields: Any) -> None:
        """Changes what an event says."""
        self.edit(place, data=Raw(json.encode({**said(self.log[place]), **fields})))

    def drop(self, place: int) -> Entry:
        return self.log.pop(place)

    def then(
        self,
        topic: str,
        name: str | UUID,
        /,
        *,
        actor: str = OPEN,
        seconds: float = 0.001,
        command_id: UUID | None = None,
        **fields: Any,
    ) -> Entry:
        """One more event at the end."""
        aggregate = self.cast[name] if isinstance(name, str) else name
        last = self.log[-1]
        at = last.recorded_at + timedelta(seconds=seconds)
        command_id = command_id or uuid7()
        entry = Entry(
            position=last.position + 1,
            aggregate=aggregate,
            version=1 + sum(entry.aggregate == aggregate for entry in self.log),
            topic=topic,
            recorded_at=at,
            actor=actor,
            command_id=command_id,
            correlation_id=command_id,
            causation_id=None,
            data=Raw(json.encode({"at": at, **fields})),
        )
        self.log.append(entry)
        return entry

    def claim(self, order: str, bot: str, **fields: Any) -> Entry:
        """One more claim, on both sides."""
        claim_id = fields.pop("claim_id", None) or uuid7()
        attempt, actor = fields.pop("attempt", 1), fields.pop("actor", OPEN)
        entry = self.then(
            "bot.claimed",
            bot,
            actor=actor,
            claim_id=claim_id,
            order_id=self.cast[order],
            **fields,
        )
        due_at = entry.recorded_at + timedelta(seconds=LATER)
        return self.then(
            "order.claimed",
            order,
            actor=actor,
            seconds=0,
            command_id=entry.command_id,
            claim_id=claim_id,
            bot_id=self.cast[bot],
            due_at=due_at,
            mode="timer",
            attempt=attempt,
            aged=False,
        )


def said(entry: Entry) -> dict[str, Any]:
    told: dict[str, Any] = json.decode(entry.data)
    return told


def judge(log: Log, *only: str, world: World | None = None, **evidence: Any) -> dict[str, Finding]:
    case = Case(world=world or World(), **evidence)
    return {finding.id: finding for finding in check(log, case, only=only)}


def read_log(conninfo: str) -> Log:
    kept = Kept(tables=(), read_models=(), derive=lambda _wanted: ())
    service = Service(reader_conninfo(conninfo), kept)
    log = Log(service)
    service.close()
    return log


class Author:
    """Lets everything happen, some of it by chance."""

    def __init__(self, committer: Committer, seed: int = 1) -> None:
        self._committer = committer
        self._chance = random.Random(seed)
        self.receipts: list[tuple[UUID, int | None]] = []
        self.cast: dict[str, UUID] = {}

    async def write(self) -> None:
        await self._quiet_evening()
        for _ in range(12):
            await self._busy_hour()
        await self._troubles()
        await self._jobs()
        for _ in range(6):
            await self._more_jobs()
        await self._leave_behind()

    async def do(self, command: Command[Any], actor: str = OPEN, cause: int | None = None) -> Any:
        command_id = uuid7()
        origin = Origin(command_id=command_id, actor=actor, causation_id=cause)
        receipt: Receipt = await self._committer.submit(command, origin)
        self.receipts.append((command_id, receipt.position))
        return receipt.answer

    async def order(self, kind: OrderKind = OrderKind.NORMAL) -> Order:
        order: Order = await self.do(CreateOrder(order_id=uuid7(), kind=kind))
        return order

    async def bot(self, completion: CompletionMode = CompletionMode.TIMER) -> Bot:
        bot: Bot = await self.do(CreateBot(bot_id=uuid7(), completion=completion))
        return bot

    async def claim(self, bot: Bot, seconds: float = LATER, actor: str = DISPATCH) -> Order:
        command = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=seconds)
        claimed: Claimed = await self.do(command, actor)
        assert claimed.order is not None
        return claimed.order

    async def complete(self, order: Order, via: CompletedVia, actor: str = OPEN) -> None:
        assert order.claim is not None
        by_time = via is CompletedVia.TIMER
        command = CompleteOrder(order_id=order.id, claim_id=order.claim.id, via=via, if_due=by_time)
        await self.do(command, actor, cause=1 if by_time else None)

    async def fail(self, order: Order, *, retryable: bool = True) -> None:
        assert order.claim is not None
        command = FailOrder(
            order_id=order.id, claim_id=order.claim.id, error="burnt", retryable=retryable
        )
        await self.do(command)

    async def expire(self, order: Order) -> None:
        command = ReleaseOrder(
            order_id=order.id,
            claim_id=order.claim.id if order.claim else None,
            reason=ReleaseReason.EXPIRED,
        )
        await self.do(command, RECOVERY)

    async def _quiet_evening(self) -> None:
        """One order after another, in every way to its end."""
        cook, helper = await self.bot(), await self.bot(CompletionMode.ACK)
        for via in (CompletedVia.REPORT, CompletedVia.CALLBACK):
            await self.order(OrderKind.VIP)
            await self.complete(await self.claim(cook), via)
        await self.order()
        timed = await self.claim(cook, SOON)
        await asyncio.sleep(2 * SOON)
        await self.complete(timed, CompletedVia.TIMER, COMPLETIONS)
        await self.order()
        for _ in range(3):
            late = await self.claim(helper, SOON)
            await asyncio.sleep(2 * SOON)
            await self.expire(late)
        await self.do(RequeueOrder(order_id=late.id))
        await self.complete(await self.claim(helper), CompletedVia.REPORT)

    async def _busy_hour(self) -> None:
        """Several at once, and each ends as it happens to."""
        bots = [await self.bot() for _ in range(3)]
        kinds = self._chance.choices([*OrderKind], k=5)
        orders = [await self.order(kind) for kind in kinds]
        held = [await self.claim(bot) for bot in bots]
        for order in self._chance.sample(held, k=len(held)):
            assert order.claim is not None
            await self._chance.choice(
                [
                    self._reported,
                    self._failed,
                    self._stopped,
                    self._deleted,
                    self._bot_deleted,
                ]
            )(order)
        for order in orders:
            await self._cook_or_delete(order, bots)

    async def _cook_or_delete(self, order: Order, bots: Sequence[Bot]) -> None:
        """Whatever became of it, in the end it is done or gone."""
        spare = await self.bot()
        try:
            await self.do(
                AssignOrder(order_id=order.id, bot_id=spare.id, claim_id=uuid7(), seconds=LATER)
            )
        except Exception:  # It is complete or deleted already.
            return
        await self.do(CompleteOrder(order_id=order.id, via=CompletedVia.REPORT))

    async def _reported(self, order: Order) -> None:
        await self.complete(order, CompletedVia.REPORT)

    async def _failed(self, order: Order) -> None:
        await self.fail(order)

    async def _stopped(self, order: Order) -> None:
        assert order.claim is not None
        await self.do(ReleaseBot(bot_id=order.claim.bot_id))

    async def _deleted(self, order: Order) -> None:
        await self.do(DeleteOrder(order_id=order.id))
        await self.do(RestoreOrder(order_id=order.id))

    async def _bot_deleted(self, order: Order) -> None:
        assert order.claim is not None
        await self.do(DeleteBot(bot_id=order.claim.bot_id))

    async def _troubles(self) -> None:
        """Dead letters, and what comes after an end."""
        bot = await self.bot()
        doomed = await self.order()
        for _ in range(3):
            await self.fail(await self.claim(bot))
        await self.do(RequeueOrder(order_id=doomed.id))
        await self.fail(await self.claim(bot), retryable=False)
        await self.do(DeleteOrder(order_id=doomed.id))
        await self.order()
        done = await self.claim(bot)
        await self.complete(done, CompletedVia.REPORT)
        await self.do(DeleteOrder(order_id=done.id))
        await self.do(RestoreOrder(order_id=done.id))

    async def enqueue(self, *new: NewJob, actor: str = OPEN) -> list[Job]:
        return [one.job for one in await self.do(CreateJobs(new), actor)]

    async def take(self, limit: int = 1, queue: str = "email") -> list[Job]:
        command = ClaimJobs(selector=Selector((queue,)), worker="w1", limit=limit, claim_id=uuid7())
        jobs: list[Job] = await self.do(command)
        return jobs

    async def finish(self, job: Job, outcome: Outcome, **fields: Any) -> Job:
        assert job.lease is not None
        result = Result(job_id=job.id, claim_id=job.lease.id, outcome=outcome, **fields)
        (settled,) = await self.do(FinishJobs(results=[result], jitter=0))
        assert isinstance(settled.answer, Job), settled.answer
        return settled.answer

    async def _jobs(self) -> None:
        """One job after another, in every way to its end."""
        await self.do(ConfigureQueue(name="email", concurrency=100))
        await self.enqueue(new_job(), actor="enqueue")
        (job,) = await self.take()
        then = tuple(new_job() for _ in range(3))
        await self.finish(job, Outcome.DONE, then=then)
        for job in await self.take(3):
            await self.finish(job, Outcome.DONE)
        await self._retried()
        await self._given_back()
        await self._keyed()
        for _ in range(3):
            await self.enqueue(new_job(partition="p", queue="lane"))
        for _ in range(3):
            (job,) = await self.take(queue="lane")
            await self.finish(job, Outcome.DONE)

    async def _retried(self) -> None:
        (job,) = await self.enqueue(new_job())
        for _ in range(3):
            (job,) = await self.take()
            await self.finish(job, Outcome.RETRY, error="busy")
        await self.do(RetryJob(job.id))
        (job,) = await self.take()
        await self.finish(job, Outcome.FAIL, error="wrong address")
        await self.do(CancelJob(job.id))
        await self.do(RetryJob(job.id))
        (job,) = await self.take()
        await self.finish(job, Outcome.DONE)

    async def _given_back(self) -> None:
        run_at = datetime.fromisoformat("2020-01-01T00:00:00Z")
        await self.enqueue(new_job(run_at=run_at, lease_seconds=SOON))
        (job,) = await self.take()
        await self.finish(job, Outcome.RELEASE)
        (job,) = await self.take()
        await self.finish(job, Outcome.SNOOZE, until=run_at)
        (job,) = await self.take()
        assert job.lease is not None
        await asyncio.sleep(2 * SOON)
        await self.do(ExpireLease(job_id=job.id, claim_id=job.lease.id, jitter=0), LEASES)
        (job,) = await self.take()
        await self.finish(job, Outcome.DONE)

    async def _keyed(self) -> None:
        for _ in range(2):
            again = new_job(unique_key="weekly", unique_scope=UniqueScope.UNFINISHED)
            await self.enqueue(again, again)
            (job,) = await self.take()
            await self.finish(job, Outcome.DONE)
        await self.enqueue(new_job(unique_key="once"), new_job(unique_key="once"))
        (job,) = await self.take()
        await self.do(CancelJob(job.id))

    async def _more_jobs(self) -> None:
        await self.enqueue(*(new_job() for _ in range(5)))
        for job in await self.take(5):
            outcome = self._chance.choice([Outcome.DONE, Outcome.RETRY, Outcome.RELEASE])
            await self.finish(job, outcome, error="busy" if outcome is Outcome.RETRY else "")
        for job in await self.take(10):
            await self.finish(job, Outcome.DONE)

    async def _leave_behind(self) -> None:
        cast = self.cast
        cast["idle bot"] = (await self.bot()).id
        cast["busy bot"] = (busy := await self.bot()).id
        cast["deleted bot"] = (await self.do(DeleteBot(bot_id=(await self.bot()).id))).id
        cast["complete order"] = (await self.order()).id
        await self.complete(await self.claim(busy), CompletedVia.REPORT)
        cast["dead order"] = (await self.order()).id
        await self.fail(await self.claim(busy), retryable=False)
        cast["held order"] = (await self.order()).id
        await self.claim(busy)
        cast["deleted order"] = (await self.order()).id
        await self.do(DeleteOrder(order_id=cast["deleted order"]))
        cast["pending order"] = (await self.order()).id
        cast["later order"] = (await self.order()).id
        cast["completed job"] = (await self.enqueue(new_job()))[0].id
        await self.finish((await self.take())[0], Outcome.DONE)
        cast["dead job"] = (await self.enqueue(new_job()))[0].id
        await self.finish((await self.take())[0], Outcome.FAIL, error="never")
        cast["held job"] = (await self.enqueue(new_job()))[0].id
        await self.take()
        cast["cancelled job"] = (await self.enqueue(new_job()))[0].id
        await self.do(CancelJob(cast["cancelled job"]))
        cast["pending job"] = (await self.enqueue(new_job()))[0].id
        cast["keyed job"] = (await self.enqueue(new_job(unique_key="k", queue="print")))[0].id
        lane = [new_job(partition="p", queue="lane") for _ in range(2)]
        cast["first in lane"], cast["second in lane"] = (j.id for j in await self.enqueue(*lane))


def claim_of(entry: Entry) -> UUID:
    return UUID(said(entry)["claim_id"])


def events_of(log: Sequence[Entry], aggregate: UUID) -> Iterator[Entry]:
    return (entry for entry in log if entry.aggregate == aggregate)
