"""A short load of `daybook bench tickets`: two processes, repeated requests, two desks."""

import asyncio
from typing import Any

import pytest

from bench.workloads.ticket_load import check_log, load, replay, serving


# S2-01 S2-04 S2-17 S2-21 S2-30 S2-48 S2-49
@pytest.mark.slow
@pytest.mark.parametrize("per_minute", [300, 1200])
def test_two_processes_serve_one_line_without_a_fault(own_database: str, per_minute: int) -> None:
    with serving(own_database, 2) as ports:
        seen = asyncio.run(load(ports, per_minute=per_minute, seconds=10))
    found = check_log(own_database, seen)

    assert found.joins == per_minute // 6
    assert found.calls
    assert (found.faults, seen.unequal_count) == (0, 0), found


def created(number: int, position: int, ticket: str) -> tuple[str, dict[str, Any], str]:
    shown = f"RTRATTORIA-{number:06d}"
    fields = {"sequence": number, "token_number": shown, "position_at_join": position}
    return "ticket.created", fields, ticket


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        ([created(1, 1, "a"), created(3, 2, "b")], "wrong_tokens"),
        ([created(1, 1, "a"), created(1, 2, "b")], "wrong_tokens"),
        ([created(1, 1, "a"), created(2, 1, "b")], "wrong_positions"),
        (
            [created(1, 1, "a"), ("ticket.called", {}, "a"), ("ticket.called", {}, "a")],
            "called_twice",
        ),
        ([created(1, 1, "a"), created(2, 2, "b"), ("ticket.called", {}, "b")], "out_of_order"),
    ],
)
def test_the_check_of_the_log_finds_each_fault(history: list[Any], fault: str) -> None:
    found = replay(history)

    assert getattr(found, fault) >= 1
    assert found.faults >= 1
