"""The table by which the board folds events is derived from the domain, and folds as it does."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from daybook.domain.orders.bot import BOT
from daybook.domain.orders.order import ORDER
from tests.support.board_transitions import FILE, derive, history, interpret, render

TRANSITIONS = derive()


def test_the_boards_table_is_the_one_derived_from_the_domain() -> None:
    assert FILE.read_text() == render(), "run `.venv/bin/python -m tests.support.board_transitions`"


def test_every_event_of_orders_and_bots_has_a_transition() -> None:
    assert set(TRANSITIONS) == {kind.topic for kind in (*ORDER.events, *BOT.events)}


@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_the_table_gives_the_json_of_the_domain_after_every_event(
    random: Random, steps: int
) -> None:
    for change in history(random, steps):
        folded = interpret(TRANSITIONS[change.topic], change.before, change.data)
        assert folded == change.after
