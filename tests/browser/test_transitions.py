"""The board's own code folds random histories of orders and bots as the domain does."""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daybook.api.web.pages import web
from tests.browser.visit import Visit
from tests.support.board_transitions import history

FOLD = """async ([module, changes]) => {
  const { evolve } = await import(module);
  return changes.map(([state, topic, data]) => evolve(state ?? undefined, { topic, data }));
}"""


def test_the_board_has_the_json_of_the_domain_after_every_event(visit: Visit) -> None:
    page = visit.open()
    module = f"/web/{web().version}/board/evolve.js"

    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
    @given(st.randoms(use_true_random=False), st.integers(1, 60))
    def fold(random: Random, steps: int) -> None:
        changes = history(random, steps)
        told = [[one.before, one.topic, one.data] for one in changes]
        assert page.evaluate(FOLD, [module, told]) == [one.after for one in changes]

    fold()
