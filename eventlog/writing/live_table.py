"""Live tables: the state of every unfinished aggregate of one kind, written in the transaction of
its events. They are never stale, so claims read them.

A table is declared once, in `projections/`. Statements that were tuned by hand stand beside the
declaration, each with the benchmark that pays for it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol
from uuid import UUID

from msgspec import Struct

from daybook.domain.event import Decider, S
from daybook.eventlog.writing.row_mapping import Column, Parameters, RowMapping

Statement = tuple[str, Parameters]
Statements = Sequence[Statement]


class Change(Protocol):
    """An aggregate before and after a batch."""

    @property
    def before(self) -> Any: ...
    @property
    def state(self) -> Any: ...


Changes = Mapping[str, Sequence[Change]]
"""The changes of a batch, by the name of the decider."""


class SideStatements(Struct, frozen=True, gc=False):
    """Statements that a batch needs beside writing the live rows."""

    # Run before any write, to lock rows of side tables.
    before: Statements = ()
    # Run after the append, when events have positions.
    after: Statements = ()


NO_SIDE_STATEMENTS = SideStatements()


class Pick(Generic[S]):
    """Selects the most urgent ready rows of a table. The type of `selector` depends on the table.
    This one picks with a single statement."""

    more_ready_exists: str | None = None
    """Whether a ready row beside `ids` exists, which another writer had locked."""

    def statements(self, selector: Any, limit: int) -> Statements:
        """Selects the `limit` most urgent ready rows, skipping locked rows."""
        raise NotImplementedError

    def locks_before(self, selector: Any) -> Statements:  # noqa: ARG002 (most tables need none)
        """Locks other rows which must not change during a pick."""
        return ()

    def statements_after_locks(self, selector: Any, limit: int, ready: Sequence[S]) -> Statements:
        """Picks more, in a further round trip, if `locks_before` locked a row. `ready` are the
        states that `statements` found."""
        raise NotImplementedError

    def merge(self, selector: Any, picked: Sequence[list[S]]) -> list[S]:  # noqa: ARG002 (for others)
        """Merges the results of all statements in claim order, without duplicates."""
        (rows,) = picked
        return rows

    def selection(self, selector: Any) -> Parameters:  # noqa: ARG002 (most tables have one kind)
        """Returns the parameters of `more_ready_exists`, beside `ids`."""
        return {}


class CacheRules(Generic[S]):
    """Which states a RowCache keeps, and how their rows are locked without reading them."""

    lock_if_version: str
    """Locks the rows of the sorted `ids`; fails unless `versions` and `claims` match."""

    delete_if_version: str
    """Deletes the rows of `ids` under `claims`; fails unless they are `count` rows whose versions
    add up to `versions`. The sum suffices because the batch also appends their next events, so no
    row can have a later version, and thus none has an earlier one."""

    def cacheable(self, changes: Iterable[Change]) -> list[S]:
        """Returns the states to cache: with a next command soon, and without columns that change
        outside the log."""
        raise NotImplementedError

    def claim_id(self, state: S) -> UUID:
        """Returns the claim that the row of a cached state must still have."""
        raise NotImplementedError


class SideTables(Generic[S]):
    """Tables that are maintained together with the rows; by default none."""

    names: tuple[str, ...] = ()
    # Common tables that run with each INSERT, UPDATE or DELETE of the live rows.
    with_insert = with_update = with_delete = ""

    def insert_parameters(self, states: Sequence[S]) -> Parameters:  # noqa: ARG002 (most need none)
        """Returns the parameters of `with_insert` that are no columns."""
        return {}

    def statements(self, changes: Changes) -> SideStatements:  # noqa: ARG002 (most tables have none)
        """Takes all changes of a batch, so that side rows of all kinds are locked in one order."""
        return NO_SIDE_STATEMENTS

    def row(self, state: S) -> Hashable:  # noqa: ARG002 (most add none)
        """Returns the row that INSERT adds for a state, even if the state is finished."""
        return None

    def recompute(self, states: Sequence[S]) -> Statements:  # noqa: ARG002 (most tables have none)
        """Returns statements that recompute, from the log and other rows, the data maintained by
        `statements`, after these states were written or their rows deleted."""
        return ()

    def recompute_all(self) -> Statements:
        """Returns statements that recompute columns which depend on other tables."""
        return ()


class FastUpdate(Struct, frozen=True):
    """A shorter UPDATE for changes that touch few columns."""

    applies: Callable[[Any, Any], bool]
    """Whether a change from the first state to the second touches no other column."""

    columns: tuple[str, ...]
    values: Mapping[str, str] = {}
    """Columns set by SQL from the row `new`."""


class LiveTable(RowMapping[S], Generic[S]):
    def __init__(
        self,
        name: str,
        decider: Decider[S],
        columns: Iterable[Column],
        *,
        constants: Mapping[str, Any] | None = None,
        related_by: str | None = None,
        count_related: str = "",
        update_values: Mapping[str, str] | None = None,
        fast_update: FastUpdate | None = None,
        pick: Pick[S] | None = None,
        cache: CacheRules[S] | None = None,
        sides: SideTables[S] | None = None,
        columns_outside_log: Mapping[str, str] | None = None,
    ) -> None:
        """`related_by` is the column with the id of a related aggregate; `count_related` counts the
        rows related to each id in `related_ids`. `update_values` are columns set by SQL.
        `columns_outside_log` change without an event, each with the column that limits its
        validity: the value counts while that column is unchanged."""
        super().__init__(name, decider.state, columns, constants)
        self.decider = decider
        self.pick = Pick[S]() if pick is None else pick
        self.cache = cache
        self.sides = SideTables[S]() if sides is None else sides
        self.columns_outside_log = columns_outside_log or {}
        self.select_by_id = f"{self.select}WHERE id = ANY(%(ids)b::uuid[])"
        # In the order of ids, so that batches cannot deadlock.
        self.lock = f"{self.select_by_id} ORDER BY id FOR UPDATE"
        self.lock_related = ""
        if related_by is not None:
            related = f"{related_by} = ANY(%(related_ids)b::uuid[])"
            self.lock_related = f"{self.select_by_id} OR {related} ORDER BY id FOR UPDATE"
        self.lock_all = f"{self.select}ORDER BY id FOR UPDATE"
        self.count_related = count_related
        self.insert = self.insert_sql(common=self.sides.with_insert)
        self.delete = f"DELETE FROM {name} WHERE id = ANY(%(ids)b::uuid[])"
        if self.sides.with_delete:
            self.delete = f"WITH {self.sides.with_delete}\n{self.delete}"
        self._pack = self._pack_new = self.packer(self.columns)
        self.insert_new = self.insert
        if initial := {one.name: one.initial for one in self.columns.values() if one.initial}:
            self.insert_new = self.insert_sql(initial, self.sides.with_insert)
            self._pack_new = self.packer([one for one in self.columns if one not in initial])
        common, changing = self.sides.with_update, self.changing
        self.update = self.update_sql(changing, update_values, common) if changing else ""
        self._pack_changing = self.packer(["id", *changing])
        self.fast_update, self._fast = "", fast_update
        if fast_update is not None:
            self.fast_update = self.update_sql(fast_update.columns, fast_update.values, common)
            self._pack_fast = self.packer(["id", *fast_update.columns])

    def insert_parameters(self, states: Sequence[S]) -> Parameters:
        return {**self._pack(states), **self.sides.insert_parameters(states)}

    def insert_statement(self, states: Sequence[S]) -> Statement:
        """Returns the fastest statement that inserts these states, with its parameters."""
        if any(state.version != 1 for state in states):
            return self.insert, self.insert_parameters(states)
        return self.insert_new, {**self._pack_new(states), **self.sides.insert_parameters(states)}

    def update_statement(self, changes: Sequence[Change]) -> Statement:
        """Returns the fastest statement that updates these rows, with its parameters."""
        states = [change.state for change in changes]
        fast = self._fast
        if fast is not None and all(fast.applies(one.before, one.state) for one in changes):
            return self.fast_update, self._pack_fast(states)
        return self.update, self._pack_changing(states)
