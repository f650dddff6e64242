"""The valid history, recorded by the real committer.

Orders, bots and jobs go through all their transitions. At the end, some remain in every status
under a name, so that an invalid history needs only one more event.
"""

import asyncio
import random
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from daybook.domain.command import Command
from daybook.domain.errors import OrderNotPendingError
from daybook.domain.jobs.create import CreateJobs, FollowUp
from daybook.domain.jobs.job import Job, NewJob, UniqueScope
from daybook.domain.jobs.manage import CancelJob, ConfigureQueue, RetryJob
from daybook.domain.jobs.work import (
    ClaimJobs,
    ExpireLease,
    FinishJobs,
    JobResult,
    JobSelector,
    Outcome,
)
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.claim import CompletedVia, CompletionMode, ReleaseReason
from daybook.domain.orders.commands import (
    AssignOrder,
    ClaimOrder,
    ClaimResult,
    CompleteOrder,
    ConfigureBot,
    CreateBot,
    CreateOrder,
    DeleteBot,
    DeleteOrder,
    FailOrder,
    ReleaseBot,
    ReleaseOrder,
    RequeueOrder,
    RestoreBot,
    RestoreOrder,
)
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.origin import Origin, Receipt
from daybook.eventlog.writing.committer import Committer
from tests.audit.histories.in_memory import (
    ADMIN,
    COMPLETIONS,
    DISPATCH,
    LATER_SECONDS,
    LEASES,
    OPEN,
    RECOVERY,
)
from tests.audit.histories.valid_tickets import Guests
from tests.support.jobs import new_job

# Long enough for a few commands, short enough to be waited for.
SOON_SECONDS = 0.02


class Author:
    """Records the history, partly at random."""

    def __init__(self, committer: Committer, seed: int = 1) -> None:
        self._committer = committer
        self._chance = random.Random(seed)
        self.receipts: list[tuple[UUID, int | None]] = []
        self.cast: dict[str, UUID] = {}

    async def write(self) -> None:
        await self._quiet_evening()
        for _ in range(8):
            await self._busy_hour()
        await self._troubles()
        await self._jobs()
        for _ in range(6):
            await self._more_jobs()
        await self._leave_behind()
        await Guests(self).come()

    async def do(self, command: Command[Any], actor: str = OPEN, cause: int | None = None) -> Any:
        command_id = uuid7()
        origin = Origin(command_id=command_id, actor=actor, causation_id=cause)
        receipt: Receipt = await self._committer.submit(command, origin)
        self.receipts.append((command_id, receipt.position))
        return receipt.result

    async def order(self, kind: OrderKind = OrderKind.NORMAL) -> Order:
        order: Order = await self.do(CreateOrder(order_id=uuid7(), kind=kind))
        return order

    async def bot(self, completion: CompletionMode = CompletionMode.TIMER) -> Bot:
        bot: Bot = await self.do(CreateBot(bot_id=uuid7(), completion=completion))
        return bot

    async def claim(self, bot: Bot, seconds: float = LATER_SECONDS, actor: str = DISPATCH) -> Order:
        command = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=seconds)
        claimed: ClaimResult = await self.do(command, actor)
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
        """Orders one after another, to every end."""
        cook, helper = await self.bot(), await self.bot(CompletionMode.ACK)
        for via in (CompletedVia.REPORT, CompletedVia.CALLBACK):
            await self.order(OrderKind.VIP)
            await self.complete(await self.claim(cook), via)
        await self.order()
        timed = await self.claim(cook, SOON_SECONDS)
        await asyncio.sleep(2 * SOON_SECONDS)
        await self.complete(timed, CompletedVia.TIMER, COMPLETIONS)
        await self.order()
        for _ in range(3):
            late = await self.claim(helper, SOON_SECONDS)
            await asyncio.sleep(2 * SOON_SECONDS)
            await self.expire(late)
        await self.do(RequeueOrder(order_id=late.id))
        await self.complete(await self.claim(helper), CompletedVia.REPORT)

    async def _busy_hour(self) -> None:
        """Several orders at once, each to a random end."""
        bots = [await self.bot() for _ in range(3)]
        kinds = self._chance.choices([*OrderKind], k=5)
        orders = [await self.order(kind) for kind in kinds]
        claimed = [await self.claim(bot) for bot in bots]
        ends = self._reported, self.fail, self._stopped, self._deleted, self._bot_deleted
        for order in self._chance.sample(claimed, k=len(claimed)):
            await self._chance.choice(ends)(order)
        for order in orders:
            await self._see_to_it(order)

    async def _see_to_it(self, order: Order) -> None:
        """An operator completes it if it is still open."""
        spare = await self.bot()
        claim = AssignOrder(
            order_id=order.id, bot_id=spare.id, claim_id=uuid7(), seconds=LATER_SECONDS
        )
        with suppress(OrderNotPendingError):
            await self.do(claim)
            await self.do(CompleteOrder(order_id=order.id, via=CompletedVia.REPORT))

    async def _reported(self, order: Order) -> None:
        await self.complete(order, CompletedVia.REPORT)

    async def _stopped(self, order: Order) -> None:
        assert order.claim is not None
        await self.do(ReleaseBot(bot_id=order.claim.bot_id))

    async def _deleted(self, order: Order) -> None:
        await self.do(DeleteOrder(order_id=order.id))
        await self.do(RestoreOrder(order_id=order.id))

    async def _bot_deleted(self, order: Order) -> None:
        assert order.claim is not None
        await self.do(DeleteBot(bot_id=order.claim.bot_id))

    async def _dead_bot(self) -> UUID:
        """Out of service, back, and out of service again."""
        command = CreateBot(bot_id=uuid7(), failures_max=4)
        bot: Bot = await self.do(command)
        await self.do(ConfigureBot(bot_id=bot.id, failures_max=2), ADMIN)
        for is_last in (False, True):
            for _ in range(2):
                order = await self.order(OrderKind.VIP)
                await self.fail(await self.claim(bot), retryable=False)
                await self.do(DeleteOrder(order_id=order.id))
            if not is_last:
                await self.do(RestoreBot(bot_id=bot.id, because="repaired"), ADMIN)
        return bot.id

    async def _troubles(self) -> None:
        """Dead letters, and events after an end."""
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
        command = ClaimJobs(
            selector=JobSelector((queue,)), worker="w1", limit=limit, claim_id=uuid7()
        )
        jobs: list[Job] = await self.do(command)
        return jobs

    async def finish(self, job: Job, outcome: Outcome, **fields: Any) -> Job:
        assert job.claim is not None
        result = JobResult(job_id=job.id, claim_id=job.claim.id, outcome=outcome, **fields)
        (finished,) = await self.do(FinishJobs(results=[result], jitter=0))
        assert isinstance(finished.answer, Job), finished.answer
        return finished.answer

    async def _jobs(self) -> None:
        """Jobs one after another, to every end."""
        await self.do(ConfigureQueue(name="email", concurrency=100))
        await self.enqueue(new_job(), actor="enqueue")
        (job,) = await self.take()
        then = tuple(FollowUp(type="send") for _ in range(3))
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
        await self.enqueue(new_job(run_at=run_at, lease_seconds=SOON_SECONDS))
        (job,) = await self.take()
        await self.finish(job, Outcome.RELEASE)
        (job,) = await self.take()
        await self.finish(job, Outcome.SNOOZE, until=run_at)
        (job,) = await self.take()
        assert job.claim is not None
        await asyncio.sleep(2 * SOON_SECONDS)
        await self.do(ExpireLease(job_id=job.id, claim_id=job.claim.id, jitter=0), LEASES)
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
        cast["dead bot"] = await self._dead_bot()
        cast["deleted bot"] = (await self.do(DeleteBot(bot_id=(await self.bot()).id))).id
        cast["complete order"] = (await self.order()).id
        await self.complete(await self.claim(busy), CompletedVia.REPORT)
        cast["dead order"] = (await self.order()).id
        await self.fail(await self.claim(busy), retryable=False)
        cast["claimed order"] = (await self.order()).id
        await self.claim(busy)
        cast["deleted order"] = (await self.order()).id
        await self.do(DeleteOrder(order_id=cast["deleted order"]))
        cast["pending order"] = (await self.order()).id
        cast["later order"] = (await self.order()).id
        cast["completed job"] = (await self.enqueue(new_job()))[0].id
        await self.finish((await self.take())[0], Outcome.DONE)
        cast["dead job"] = (await self.enqueue(new_job()))[0].id
        await self.finish((await self.take())[0], Outcome.FAIL, error="never")
        cast["claimed job"] = (await self.enqueue(new_job()))[0].id
        await self.take()
        cast["cancelled job"] = (await self.enqueue(new_job()))[0].id
        await self.do(CancelJob(cast["cancelled job"]))
        cast["pending job"] = (await self.enqueue(new_job()))[0].id
        cast["keyed job"] = (await self.enqueue(new_job(unique_key="k", queue="print")))[0].id
        lane = [new_job(partition="p", queue="lane") for _ in range(2)]
        cast["first in lane"], cast["second in lane"] = (j.id for j in await self.enqueue(*lane))
