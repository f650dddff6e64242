"""Interface of live tables: how the committer locks, picks and writes their rows.

A live table holds the state of every unfinished aggregate of one kind, written in the transaction
of its events. It is never stale, so claims read it.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol
from uuid import UUID

from msgspec import Struct
from psycopg.rows import TupleRow

from daybook.domain.event import Decider, S

Parameters = Mapping[str, Any]
Statements = Sequence[tuple[str, Parameters]]


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


class LiveTable(Generic[S]):
    """Statements and conversions of one live table. Subclasses are in `projections/`."""

    decider: ClassVar[Decider[Any]]
    name: ClassVar[str]

    # Selects all rows, with the columns that `load` expects.
    select: ClassVar[str]
    # Selects the rows of `ids` without locking them.
    select_by_id: ClassVar[str]
    # Counts the rows related to each id in `tied`, without locking them.
    count_related_statement: ClassVar[str]
    # Selects the rows of `ids` FOR UPDATE, ordered by id so that batches cannot deadlock.
    lock: ClassVar[str]
    # Like `lock`, and also selects the rows related to an id in `tied`.
    lock_related: ClassVar[str]
    # Selects all rows FOR UPDATE, ordered by id.
    lock_all: ClassVar[str]
    # Whether a ready row beside `ids` exists, which another writer had locked.
    more_ready_exists: ClassVar[str | None] = None
    insert: ClassVar[str]
    update: ClassVar[str]
    delete: ClassVar[str]

    # Whether a RowCache keeps states; then the two following statements exist.
    is_cached: ClassVar[bool] = False
    # Locks the rows of the sorted `ids`; fails unless `versions` and `claims` match.
    lock_if_version: ClassVar[str]
    # Deletes the rows of `ids` under `claims`; fails unless they are `count` rows whose versions
    # add up to `versions`. The sum suffices because the batch also appends their next events, so no
    # row can have a later version, and thus none has an earlier one.
    delete_if_version: ClassVar[str]
    # Side tables that insert, update and delete maintain together with the rows.
    side_tables: ClassVar[tuple[str, ...]] = ()
    # Columns changed without an event, each with the column that limits its validity: the value
    # counts while that column is unchanged.
    columns_outside_log: ClassVar[Mapping[str, str]] = {}

    def side_statements(self, changes: Changes) -> SideStatements:  # noqa: ARG002 (most tables have none)
        """Takes all changes of a batch, so that side rows of all kinds are locked in one order."""
        return NO_SIDE_STATEMENTS

    def locks_before_pick(self, selector: Any) -> Statements:  # noqa: ARG002 (most tables need none)
        """Returns statements that lock other rows which must not change during a pick."""
        return ()

    def picks_after_locks(self, selector: Any, limit: int, ready: Sequence[S]) -> Statements:
        """Returns more picks, run in a further round trip if `locks_before_pick` locked a row.
        `ready` are the states that `pick_statements` found."""
        raise NotImplementedError

    def pick_statements(self, selector: Any, limit: int) -> Statements:
        """Returns statements that select the `limit` most urgent ready rows, skipping locked rows.
        The type of `selector` depends on the table."""
        raise NotImplementedError

    def merge_picks(self, selector: Any, picked: Sequence[list[S]]) -> list[S]:  # noqa: ARG002 (for others)
        """Merges the results of all picks in claim order, without duplicates."""
        (rows,) = picked
        return rows

    def selection(self, selector: Any) -> Parameters:  # noqa: ARG002 (most tables have one kind)
        """Returns the parameters of `more_ready_exists`, beside `ids`."""
        return {}

    def recompute_derived(self, states: Sequence[S]) -> Statements:  # noqa: ARG002 (most tables have none)
        """Returns statements that recompute, from the log and other rows, the data maintained by
        `side_statements`, after these states were written or their rows deleted."""
        return ()

    def recompute_all(self) -> Statements:
        """Returns statements that recompute columns which depend on other tables."""
        return ()

    def cacheable(self, changes: Iterable[Change]) -> list[S]:
        """Returns the states to cache: those with a next command soon, and without columns that
        change outside the log."""
        raise NotImplementedError

    def claim_id(self, state: S) -> UUID:
        """Returns the claim that the row of a cached state must still have."""
        raise NotImplementedError

    def side_row(self, state: S) -> Hashable:
        """Returns the row that `insert` adds to the side tables for a state."""
        raise NotImplementedError

    def load(self, row: TupleRow) -> S:
        raise NotImplementedError

    def insert_statement(self, states: Sequence[S]) -> tuple[str, Parameters]:
        """Returns the fastest statement that inserts these states, with its parameters."""
        return self.insert, self.insert_parameters(states)

    def update_statement(self, changes: Sequence[Change]) -> tuple[str, Parameters]:
        """Returns the fastest statement that updates these rows, with its parameters."""
        return self.update, self.update_parameters([change.state for change in changes])

    def insert_parameters(self, states: Sequence[S]) -> Parameters:
        raise NotImplementedError

    def update_parameters(self, states: Sequence[S]) -> Parameters:
        raise NotImplementedError
