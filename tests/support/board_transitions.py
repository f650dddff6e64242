"""Derives `board/transitions.js`, by which the board folds orders and bots, from the domain.

Random histories, built by the real commands, are folded by `evolve` and rendered as the API renders
them. For each topic and member of the JSON, the derivation finds the operation that explains every
observed change; where no single one does, it splits by a member of the event or of the state.

After a change of an event, of `evolve` or of the JSON of an order or a bot, write the file again:
`.venv/bin/python -m tests.support.board_transitions`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from uuid_utils.compat import uuid7

from daybook.api.http.event_json import members_json
from daybook.api.orders.responses import bot_json, order_json
from daybook.api.web.pages import FILES
from daybook.domain.command import Command
from daybook.domain.errors import Refusal
from daybook.domain.event import Decider
from daybook.domain.orders import commands
from daybook.domain.orders.bot import BOT, ERROR_CHARACTERS_MAX, ERRORS_MAX, Bot
from daybook.domain.orders.claim import CompletedVia, CompletionMode, ReleaseReason
from daybook.domain.orders.order import ORDER, ORDER_RANKS, Order, OrderDetails, OrderKind
from tests.support.order_state_machine import PlainUnitOfWork

FILE = FILES / "board" / "transitions.js"
HISTORIES, STEPS = 40, 200
SPLITS_MAX = 2
COLUMNS_MAX = 110
CASES_MAX = 5  # A member of an event with more values is no enumeration
# Outside the Basic Multilingual Plane, a character of Python is two of JavaScript.
ERRORS = ("burnt", "ü" * 499 + "🍟🍔", "🍟" * 600, "")
FAILURES_MAX = (0, 1, 3, ERRORS_MAX + 2)
TEXT = """\
/**
 * How each event changes the JSON of an order or a bot. Derived from `evolve` in `domain/orders/`
 * by `tests/support/board_transitions.py`: run it instead of editing this file.
 *
 * Each member that changes has an operation: set a value, copy a member of the event's data, add a
 * number, or append an item (its operation, the characters kept of it, the items kept). It may
 * depend on a member of the data (`by`), or on whether a member of the state is truthy (`if`, with
 * the operations for yes and no).
 */

/** Pending orders are sorted by rank, then by number. */
export const ORDER_RANKS = %s;

/** @type {Record<string, Record<string, any[]>>} */
export const TRANSITIONS = {
%s};
"""

JSON = dict[str, Any]
Operation = list[Any]
Rule = dict[str, Operation]
"""Operations by the member that they change."""

KEEP: Operation = ["keep"]


class Change(NamedTuple):
    """One event of an order or a bot, with the aggregate before and after."""

    topic: str
    data: JSON
    before: JSON | None
    after: JSON


Changes = Sequence[Change]


def history(random: Random, steps: int) -> list[Change]:
    desk = PlainUnitOfWork()
    for _ in range(steps):
        desk.now += timedelta(milliseconds=random.randrange(1, 9000))
        with suppress(Refusal):
            _draw(desk, random).decide(desk)
    return list(_changes(desk))


def _draw(desk: PlainUnitOfWork, random: Random) -> Command[Any]:
    """A random command, which may be refused."""
    draw = random.choice(DRAWS)
    orders = [one for one in desk.states.values() if isinstance(one, Order)]
    bots = [one for one in desk.states.values() if isinstance(one, Bot)]
    if not bots or draw is _create_bot:
        return _create_bot(random)
    if not orders or draw is _create_order:
        return _create_order(random)
    # Claimed orders more often: most commands are for them.
    orders = [one for one in orders if one.claim] or orders if random.random() < 0.7 else orders
    return draw(random, random.choice(orders), random.choice(bots))


def _create_bot(random: Random, *_: Any) -> Command[Any]:
    return commands.CreateBot(
        bot_id=uuid7(),
        auto_claim=random.choice([True, False]),
        completion=random.choice([*CompletionMode]),
        failures_max=random.choice(FAILURES_MAX),
    )


def _create_order(random: Random, *_: Any) -> Command[Any]:
    return commands.CreateOrder(
        order_id=uuid7(),
        kind=random.choice([*OrderKind]),
        attempts_max=random.choice([1, 3]),
        details=OrderDetails(user_id=random.choice([None, "ada"])),
        owner=random.choice([None, "corner"]),
    )


def _claim(random: Random, _: Order, bot: Bot) -> Command[Any]:
    return commands.ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=random.choice([1, 20]))


def _assign(random: Random, order: Order, bot: Bot) -> Command[Any]:
    seconds = random.choice([1, 20])
    return commands.AssignOrder(order_id=order.id, bot_id=bot.id, claim_id=uuid7(), seconds=seconds)


def _complete(random: Random, order: Order, _: Bot) -> Command[Any]:
    return commands.CompleteOrder(order_id=order.id, via=random.choice([*CompletedVia]))


def _fail(random: Random, order: Order, _: Bot) -> Command[Any]:
    return commands.FailOrder(
        order_id=order.id,
        claim_id=order.claim.id if order.claim else uuid7(),
        error=random.choice(ERRORS),
        retryable=random.choice([True, True, False]),
    )


def _release(random: Random, order: Order, _: Bot) -> Command[Any]:
    reason = random.choice([*ReleaseReason])
    return commands.ReleaseOrder(order_id=order.id, reason=reason, because=_because(random))


def _configure(random: Random, _: Order, bot: Bot) -> Command[Any]:
    failures_max, because = random.choice(FAILURES_MAX), _because(random)
    return commands.ConfigureBot(bot_id=bot.id, failures_max=failures_max, because=because)


def _change_order(random: Random, order: Order, _: Bot) -> Command[Any]:
    kinds = commands.RequeueOrder, commands.RestoreOrder, commands.DeleteOrder
    return random.choice(kinds)(order_id=order.id, because=_because(random))


def _change_bot(random: Random, _: Order, bot: Bot) -> Command[Any]:
    kinds = commands.ReleaseBot, commands.RestoreBot, commands.RestoreBot, commands.DeleteBot
    return random.choice(kinds)(bot_id=bot.id, because=_because(random))


def _because(random: Random) -> str | None:
    return random.choice([None, "a mistake"])


DRAWS: Sequence[Callable[..., Command[Any]]] = (
    *[_claim] * 6,
    *[_fail] * 4,
    _create_bot,
    _create_order,
    _assign,
    _complete,
    _release,
    _configure,
    _change_order,
    _change_bot,
)


def _changes(desk: PlainUnitOfWork) -> Iterator[Change]:
    states: dict[UUID, Any] = {}
    rendered: dict[UUID, JSON] = {}
    for aggregate_id, event in desk.log:
        decider: Decider[Any] = ORDER if isinstance(event, ORDER.events) else BOT
        state = states[aggregate_id] = decider.evolve(states.get(aggregate_id), event)
        after = _as_sent(order_json(state) if isinstance(state, Order) else bot_json(state))
        data = _as_sent(members_json(event))
        yield Change(event.topic, data, rendered.get(aggregate_id), after)
        rendered[aggregate_id] = after


def _as_sent(value: Any) -> JSON:
    sent: JSON = orjson.loads(orjson.dumps(value))
    return sent


def interpret(rule: Rule, before: JSON | None, data: JSON) -> JSON:
    """As `evolve` in `board/evolve.js`."""
    state = before or {}
    return state | {member: _perform(rule[member], member, state, data) for member in rule}


def _perform(operation: Operation, member: str, state: JSON, data: JSON) -> Any:
    match operation:
        case ["set", value]:
            return value
        case ["copy", name]:
            return data[name]
        case ["add", number]:
            return state[member] + number
        case ["append", item, characters_max, items_max]:
            added = _perform(item, member, state, data)[:characters_max]
            return [*state[member], added][-items_max:]
        case ["by", name, cases]:
            return _perform(cases.get(data[name], KEEP), member, state, data)
        case ["if", name, yes, no]:
            return _perform(yes if state[name] else no, member, state, data)
    assert operation == KEEP
    return state[member]


def derive() -> dict[str, Rule]:
    """The rule of each topic."""
    seen = [change for seed in range(HISTORIES) for change in history(Random(seed), STEPS)]
    topics = [kind.topic for kind in (*ORDER.events, *BOT.events)]
    return {topic: _rule([one for one in seen if one.topic == topic]) for topic in topics}


def _rule(changes: Changes) -> Rule:
    operations = {member: _simplest(changes, member) for member in changes[0].after}
    return {member: one for member, one in operations.items() if one != KEEP}


def _simplest(changes: Changes, member: str) -> Operation:
    for splits_max in range(SPLITS_MAX + 1):
        if operation := _operation(changes, member, splits_max):
            return operation
    raise AssertionError(f"no operation explains {member} after {changes[0].topic}")


def _operation(changes: Changes, member: str, splits_max: int) -> Operation | None:
    """An operation that explains the member after all changes, or None."""
    for operation in _candidates(changes[0], member):
        if all(_explains(operation, member, one) for one in changes):
            return operation
    if splits_max == 0:
        return None
    for name in changes[0].data:
        cases = _split(changes, member, splits_max, [one.data[name] for one in changes])
        if 1 < len(cases) <= CASES_MAX and all(cases.values()):
            return ["by", name, cases]
    for name in changes[0].before or ():
        is_set = [bool(one.before and one.before[name]) for one in changes]
        cases = _split(changes, member, splits_max, is_set)
        if len(cases) > 1 and all(cases.values()):
            return ["if", name, cases[True], cases[False]]
    return None


def _split(
    changes: Changes, member: str, splits_max: int, values: Sequence[Any]
) -> dict[Any, Operation | None]:
    pairs = [(json.dumps(value), one) for value, one in zip(values, changes, strict=True)]
    parts = {key: [one for other, one in pairs if other == key] for key in sorted(dict(pairs))}
    return {
        json.loads(key): _operation(part, member, splits_max - 1) for key, part in parts.items()
    }


def _candidates(change: Change, member: str) -> list[Operation]:
    value = change.after[member]
    copies: list[Operation] = [["copy", name] for name in change.data]
    if change.before is None:
        return [*copies, ["set", value]]
    items = [*copies, ["set", value[-1]]] if isinstance(value, list) and value else []
    appends = [["append", item, ERROR_CHARACTERS_MAX, ERRORS_MAX] for item in items]
    # The event states a member of the same name.
    stated: list[Operation] = [["copy", member]] if member in change.data else []
    return [*stated, KEEP, *copies, ["add", 1], ["add", -1], *appends, ["set", value]]


def _explains(operation: Operation, member: str, change: Change) -> bool:
    try:
        found = _perform(operation, member, change.before or {}, change.data)
    except TypeError:
        return False
    # As JSON: true is not 1.
    return json.dumps(found) == json.dumps(change.after[member])


def render() -> str:
    rules = "".join(f"  {json.dumps(topic)}: {_fill(rule)},\n" for topic, rule in derive().items())
    return TEXT % (json.dumps(ORDER_RANKS), rules)


def _fill(rule: Rule) -> str:
    """Members side by side, as many as fit in a line."""
    lines = [""]
    for member, operation in rule.items():
        text = f"{member}: {json.dumps(operation)}, "
        lines += [""] if len(lines[-1] + text) > COLUMNS_MAX else []
        lines[-1] += text
    if len(lines) == 1:
        return f"{{ {lines[0].removesuffix(', ')} }}"
    return "\n    ".join(["{", *(line.rstrip() for line in lines if line)]) + "\n  }"


if __name__ == "__main__":
    FILE.write_text(render())
