"""docs/lifecycles.md shows every transition that the rules in domain/ allow, and no other.

Each aggregate is driven through all states that its rules can reach; the transitions that occur are
compared with the state diagrams of the page.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec import Raw

from daybook.domain.backoff import Backoff
from daybook.domain.command import Command
from daybook.domain.deciders import DECIDERS
from daybook.domain.errors import Refusal
from daybook.domain.event import Decider, Event, S
from daybook.domain.jobs import job as jobs
from daybook.domain.jobs.job import JOB, Job
from daybook.domain.messages import operation as operations
from daybook.domain.messages.operation import OPERATION, Operation
from daybook.domain.orders import commands
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.claim import CompletedVia, ReleaseReason
from daybook.domain.orders.order import ORDER, Order, OrderKind
from daybook.domain.tickets import ticket as tickets
from daybook.domain.tickets.ticket import TICKET, NoShowVia, Ticket
from daybook.eventlog.codec import EventMapper
from tests.support.running.processes import ROOT

PAGE = ROOT / "docs/lifecycles.md"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDER_ID, BOT_ID, CLAIM_ID = UUID(int=1), UUID(int=2), UUID(int=3)
STEPS_MAX = 10_000
START = "[*]"
DIAGRAM = re.compile(r"^## (\w+)\n.*?^```mermaid\nstateDiagram-v2\n(.*?)^```", re.M | re.S)
ARROW = re.compile(r"(\[\*\]|\w+) --> (\w+): (.+)")

Transition = tuple[str, str, str]
"""State before, topic of the event, state after."""


def order_state(order: Order) -> str:
    return "DELETED" if order.deleted_at is not None else order.status


def bot_state(bot: Bot) -> str:
    if bot.deleted_at is not None:
        return "DELETED"
    if bot.dead_at is not None:
        return "DEAD"
    return "IDLE" if bot.order_id is None else "PROCESSING"


class OrderAndBot:
    """One order and one bot, as a unit of work in memory."""

    def __init__(self, states: dict[UUID, Any], seen: set[tuple[str, Transition]]) -> None:
        self.now = NOW
        self.states = dict(states)
        self._seen = seen

    @property
    def fingerprint(self) -> Hashable:
        order, bot = self.states[ORDER_ID], self.states[BOT_ID]
        counts = (order.attempts, bot.failures, bot.failures_max)
        return order.status, order_state(order), bot_state(bot), counts

    def get(self, _: Decider[S], aggregate_id: UUID) -> S | None:
        return self.states.get(aggregate_id)

    def all(self, decider: Decider[S]) -> Sequence[S]:
        kept = [state for state in self.states.values() if isinstance(state, decider.state)]
        return [state for state in kept if not decider.finished(state)]

    def pick_one(self, decider: Decider[S], among: Hashable = None) -> S | None:
        raise NotImplementedError

    def pick(self, decider: Decider[S], among: Hashable, *, limit: int) -> list[S]:
        raise NotImplementedError

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        raise NotImplementedError

    def next_number(self, _: str) -> int:
        return 1

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        name: Callable[[Any], str] = order_state if decider is ORDER else bot_state
        before: S | None = self.states.get(aggregate_id)
        after = decider.evolve(before, event)
        self.states[aggregate_id] = after
        transition = name(before) if before else START, event.topic, name(after)
        self._seen.add((decider.name, transition))
        return after


def order_and_bot_commands() -> Iterator[Command[Any]]:
    yield commands.AssignOrder(order_id=ORDER_ID, bot_id=BOT_ID, claim_id=CLAIM_ID, seconds=10)
    yield commands.CompleteOrder(order_id=ORDER_ID, via=CompletedVia.REPORT, bot_id=BOT_ID)
    for retryable in (True, False):
        yield commands.FailOrder(
            order_id=ORDER_ID, claim_id=CLAIM_ID, error="e", retryable=retryable, bot_id=BOT_ID
        )
    for reason in (ReleaseReason.STOPPED, ReleaseReason.EXPIRED):
        yield commands.ReleaseOrder(
            order_id=ORDER_ID, claim_id=CLAIM_ID, reason=reason, bot_id=BOT_ID, is_due=True
        )
    yield commands.DeleteOrder(order_id=ORDER_ID)
    yield commands.RestoreOrder(order_id=ORDER_ID)
    yield commands.RequeueOrder(order_id=ORDER_ID)
    yield commands.ClearOrders(complete=[])
    yield commands.DeleteBot(bot_id=BOT_ID)
    yield commands.RestoreBot(bot_id=BOT_ID)
    for failures_max in (1, 2):
        yield commands.ConfigureBot(bot_id=BOT_ID, failures_max=failures_max)


def order_and_bot_transitions() -> set[tuple[str, Transition]]:
    seen: set[tuple[str, Transition]] = set()
    first = OrderAndBot({}, seen)
    commands.CreateOrder(order_id=ORDER_ID, kind=OrderKind.VIP, attempts_max=2).decide(first)
    commands.CreateBot(bot_id=BOT_ID, failures_max=2).decide(first)
    known, waiting = {first.fingerprint}, [first]
    while waiting:
        before = waiting.pop()
        for command in order_and_bot_commands():
            after = OrderAndBot(before.states, seen)
            with suppress(Refusal):
                command.decide(after)
                if after.fingerprint not in known:
                    known.add(after.fingerprint)
                    waiting.append(after)
        assert len(known) < STEPS_MAX
    return seen


Rule = Callable[[Any], Event | list[Event]]


def driven(decider: Decider[Any], created: Event, rules: Sequence[Rule]) -> set[Transition]:
    """Applies every rule in every state that can be reached; refusals change nothing."""
    first = decider.evolve(None, created)
    seen: set[Transition] = {(START, created.topic, first.status)}
    known, waiting = {_fingerprint(first)}, [first]
    while waiting:
        before = waiting.pop()
        for rule in rules:
            with suppress(Refusal):
                state = before
                decided = rule(state)
                for event in [decided] if isinstance(decided, Event) else decided:
                    after = decider.evolve(state, event)
                    seen.add((state.status, event.topic, after.status))
                    state = after
                if _fingerprint(state) not in known:
                    known.add(_fingerprint(state))
                    waiting.append(state)
        assert len(known) < STEPS_MAX
    return seen


def _fingerprint(state: Any) -> Hashable:
    names = ("status", "attempts", "failures")
    is_delayed = getattr(state, "run_at", None) is not None
    return (*(getattr(state, name, 0) for name in names), is_delayed)


def job_transitions() -> set[Transition]:
    created = Job.Created(
        at=NOW, job_id=UUID(int=4), number=1, queue="mail", type="greet", payload=Raw(b"1"),
        priority=5, attempts_max=2, lease_seconds=90, unique_key="k",
    )  # fmt: skip

    def fail(retryable: bool) -> Rule:
        return lambda job: jobs.fail(
            job, claim_id=CLAIM_ID, error="e", retryable=retryable, retry_delay_seconds=1, now=NOW
        )

    rules: list[Rule] = [
        # The statements of a claim pick pending jobs only.
        lambda job: (
            jobs.claim(job, claim_id=CLAIM_ID, worker="w", lease_seconds=None, now=NOW)
            if job.status == "PENDING"
            else []
        ),
        lambda job: jobs.complete(job, claim_id=CLAIM_ID, result=Raw(b"1"), now=NOW),
        fail(True),
        fail(False),
        lambda job: jobs.release(job, claim_id=CLAIM_ID, now=NOW),
        lambda job: jobs.snooze(job, claim_id=CLAIM_ID, until=NOW + timedelta(seconds=1), now=NOW),
        lambda job: jobs.requeue(job, now=NOW),
        lambda job: jobs.cancel(job, now=NOW),
        # `create_job`: a unique key of the scope "unfinished" is used again.
        lambda job: created if job.is_over else [],
        # `RescheduleRetry`: the clock went back.
        lambda job: Job.Rescheduled(at=NOW, run_at=NOW) if job.run_at is not None else [],
    ]
    return driven(JOB, created, rules)


def ticket_transitions() -> set[Transition]:
    def transfer(ticket: Ticket) -> Event:
        tickets.require_not_over(ticket)
        return example(TICKET, "ticket.transferred")

    rules: list[Rule] = [
        lambda ticket: tickets.call(
            ticket, desk="A", grace_seconds=300, out_of_turn=False, now=NOW
        ),
        lambda ticket: tickets.recall(ticket, desk="A", grace_seconds=300, now=NOW),
        lambda ticket: tickets.seat(ticket, now=NOW),
        lambda ticket: tickets.miss(ticket, via=NoShowVia.DESK, now=NOW),
        lambda ticket: tickets.return_(ticket, now=NOW),
        lambda ticket: tickets.cancel(ticket, reason=None, now=NOW),
        transfer,
    ]
    return driven(TICKET, example(TICKET, "ticket.created"), rules)


def operation_transitions() -> set[Transition]:
    def fail(operation: Operation) -> Event:
        return operations.fail(
            operation, error="e", skipped=(), jitter=1.0, backoff=Backoff(), now=NOW
        )

    rules: list[Rule] = [
        lambda operation: operations.complete(operation, duplicates=(), now=NOW),
        fail,
        lambda operation: operations.retry(operation, number=2, because=None, now=NOW),
        lambda operation: operations.cancel(operation, because=None, now=NOW),
    ]
    return driven(OPERATION, example(OPERATION, "operation.created"), rules)


def example(decider: Decider[Any], topic: str) -> Event:
    """The event of that topic in tests/domain/stored_events.json."""
    stored = json.loads((ROOT / "tests/domain/stored_events.json").read_text(encoding="utf-8"))
    state = next(one["state"] for one in stored if one["topic"] == topic)
    event: Event = EventMapper((decider,)).decode(topic, json.dumps(state).encode())
    return event


def shown() -> dict[str, set[Transition]]:
    """The transitions of the diagrams of the page, by heading."""
    found: dict[str, set[Transition]] = {}
    for heading, diagram in DIAGRAM.findall(PAGE.read_text(encoding="utf-8")):
        arrows = [match.groups() for match in map(ARROW.fullmatch, _lines(diagram)) if match]
        assert len(arrows) == len([*_lines(diagram)]), f"{heading}: a line is no transition"
        found[heading.lower()] = {
            (before, topic, after)
            for before, after, topics in arrows
            for topic in topics.split(", ")
        }
    return found


def _lines(diagram: str) -> Iterable[str]:
    return [line.strip() for line in diagram.splitlines() if line.strip()]


def seen_of(name: str) -> set[Transition]:
    return {transition for one, transition in order_and_bot_transitions() if one == name}


ALLOWED: dict[str, Callable[[], set[Transition]]] = {
    "order": lambda: seen_of("order"),
    "bot": lambda: seen_of("bot"),
    "job": job_transitions,
    "ticket": ticket_transitions,
    "operation": operation_transitions,
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_diagram_shows_the_transitions_that_the_rules_allow(name: str) -> None:
    assert shown()[name] == ALLOWED[name]()


@pytest.mark.parametrize("name", ALLOWED)
def test_a_diagram_shows_every_event_of_its_aggregate(name: str) -> None:
    (decider,) = (one for one in DECIDERS if one.name == name)
    assert {topic for _, topic, _ in shown()[name]} == {event.topic for event in decider.events}
