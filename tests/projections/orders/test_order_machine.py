"""Stateful test: orders in the database behave as the model, and tables equal the log's fold."""

from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test

from daybook.domain.command import Command
from daybook.domain.errors import Refusal
from daybook.domain.event import State
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.order import Order
from tests.conftest import empty
from tests.support.committer import Submitter, fold_of_the_log, live_rows, open_submitter
from tests.support.order_state_machine import OrderMachine


class DatabaseOrderMachine(OrderMachine):
    """Submits every command to the model and to a committer."""

    claim_seconds = 0  # Due at once: the database's clock cannot be moved as the model's can.
    database: str
    portal: BlockingPortal

    @initialize()
    def open(self) -> None:
        super().open()
        self._submitter = self.portal.wrap_async_context_manager(open_submitter(self.database))
        self.submitter: Submitter = self._submitter.__enter__()

    def teardown(self) -> None:
        if hasattr(self, "_submitter"):
            self._submitter.__exit__(None, None, None)
            empty(self.database)

    def attempt(self, command: Command[Any]) -> type[Refusal] | None:
        expected = super().attempt(command)
        with nullcontext() if expected is None else pytest.raises(expected):
            self.portal.call(self.submitter.submit, command)
        return expected

    @invariant()
    def the_live_tables_are_the_fold_of_the_log_and_what_the_model_says(self) -> None:
        if not hasattr(self, "_submitter"):
            return
        live = live_rows(self.database)
        assert live == fold_of_the_log(self.database)
        model = {i: s for i, s in self.unit_of_work.states.items() if not _is_finished(s)}
        assert _essence(live) == _essence(model)


def _is_finished(state: State) -> bool:
    if isinstance(state, Order):
        return state.deleted_at is not None or state.status == "COMPLETE"
    assert isinstance(state, Bot)
    return state.deleted_at is not None


def _essence(states: dict[UUID, Any]) -> dict[UUID, Any]:
    """Without times, which the model and the database take from different clocks."""
    return {
        aggregate_id: (s.version, s.number, s.kind, s.status, s.attempts, s.claim and s.claim.id)
        if isinstance(s, Order)
        else (s.version, s.order_id, s.claim_id, s.failures_max, s.failures, s.errors)
        for aggregate_id, s in states.items()
    }


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_orders_in_the_database_behave_as_the_model(database: str, examples: int) -> None:
    with start_blocking_portal() as portal:

        class Machine(DatabaseOrderMachine):
            pass

        Machine.database, Machine.portal = database, portal
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
