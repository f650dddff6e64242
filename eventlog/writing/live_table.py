"""What the committer needs to know of a live table: how its rows are held, picked and written.

A live table holds the state of every unfinished aggregate of one kind, as the fold of its
events, written in the transaction of those events. It is never stale, and claims read it.
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
    """An aggregate as it was when a batch began, and as it is after it."""

    @property
    def before(self) -> Any: ...
    @property
    def state(self) -> Any: ...


Changes = Mapping[str, Sequence[Change]]
"""Of a batch, by the name of the decider."""


class SideStatements(Struct, frozen=True, gc=False):
    """What else must be done with the changes of a batch, beside writing the rows."""

    before: Statements = ()
    """Before anything is written: holds what the changes touch beside their own rows."""

    after: Statements = ()
    """After the events have their positions."""


NO_SIDE_STATEMENTS = SideStatements()


class LiveTable(Generic[S]):
    """Statements and conversions of one live table. Subclasses stand in `projections/`."""

    decider: ClassVar[Decider[Any]]

    name: ClassVar[str]
    """Of the table."""

    select: ClassVar[str]
    """Selects all rows, with their columns as `load` takes them."""

    select_by_id: ClassVar[str]
    """Selects the rows of `ids`, and holds none of them."""

    count_related_statement: ClassVar[str]
    """Selects those of the ids in `tied` to which rows are tied, and how many; holds none."""

    lock: ClassVar[str]
    """Selects the rows of `ids` FOR UPDATE, ordered by id: the order of locks is fixed."""

    lock_related: ClassVar[str]
    """The same, and beside them the rows that are tied to one of the ids in `tied`."""

    lock_all: ClassVar[str]
    """All rows FOR UPDATE, ordered by id."""

    more_ready_exists: ClassVar[str | None] = None
    """Is there a ready row beside `ids`? Then others held it while ours were picked."""

    insert: ClassVar[str]
    update: ClassVar[str]
    delete: ClassVar[str]

    is_cached: ClassVar[bool] = False
    """Whether some of its states are remembered: then it has the two statements that follow."""

    lock_if_version: ClassVar[str]
    """Holds the rows of `ids`, which are sorted, and fails if they are not of these `versions` and
    under these `claims`."""

    delete_if_version: ClassVar[str]
    """Deletes the rows of `ids` under `claims`, and fails if they are not `count` or if their
    versions do not add up to `versions`. That is enough for rows whose next events are appended
    with it: none can be of a later version than is known, so none is of an earlier one."""

    side_tables: ClassVar[tuple[str, ...]] = ()
    """Tables in which `insert` notes something beside the rows themselves; `update` and `delete`
    keep it right, where it depends on the rows that are there."""

    columns_outside_log: ClassVar[Mapping[str, str]] = {}
    """Columns that are moved by what is no event, and for each the column that says how long that
    counts: as long as it is the same."""

    def side_statements(self, changes: Changes) -> SideStatements:  # noqa: ARG002 (most rows stand alone)
        """Of all that a batch has changed, so that what is held beside the rows is held in one
        order, whichever kinds of aggregates it concerns."""
        return NO_SIDE_STATEMENTS

    def locks_before_pick(self, among: Any) -> Statements:  # noqa: ARG002 (most tables need none)
        """Statements that hold what else must not change while ready rows are picked."""
        return ()

    def picks_after_locks(self, among: Any, limit: int, ready: Sequence[S]) -> Statements:
        """More picks, run only if `locks_before_pick` locked a row: one more round trip. `ready`
        are the states that `pick_statements` found."""
        raise NotImplementedError

    def pick_statements(self, among: Any, limit: int) -> Statements:
        """Statements that select the `limit` most urgent ready rows, skipping those that others
        hold. What `among` is, the commands that ask for them know."""
        raise NotImplementedError

    def merge_picks(self, among: Any, picked: Sequence[list[S]]) -> list[S]:  # noqa: ARG002 (for others)
        """What the statements gave, in the order in which it is to be taken, each once."""
        (rows,) = picked
        return rows

    def selection(self, among: Any) -> Parameters:  # noqa: ARG002 (most tables have one kind)
        """Parameters of `overlooked`, beside the ids."""
        return {}

    def recompute_derived(self, states: Sequence[S]) -> Statements:  # noqa: ARG002 (most rows stand alone)
        """Statements that set anew, from the log and the other rows, what `around` keeps up to
        date: after these states were written, or their rows deleted."""
        return ()

    def recompute_all(self) -> Statements:
        """Statements that set anew what depends on other tables than this: once both are there."""
        return ()

    def cacheable(self, changes: Iterable[Change]) -> list[S]:
        """The states that are worth remembering: the next command about one comes soon, and needs
        nothing of its row that is not in its events."""
        raise NotImplementedError

    def claim_id(self, state: S) -> UUID:
        """Of a state that is remembered: the claim under which its row must still be."""
        raise NotImplementedError

    def side_row(self, state: S) -> Hashable:
        """What `insert` notes of a state in the tables beside."""
        raise NotImplementedError

    def load(self, row: TupleRow) -> S:
        raise NotImplementedError

    def insert_statement(self, states: Sequence[S]) -> tuple[str, Parameters]:
        """The quickest statement that inserts these, with its parameters."""
        return self.insert, self.insert_parameters(states)

    def update_statement(self, changes: Sequence[Change]) -> tuple[str, Parameters]:
        """The quickest statement that updates the rows of these, with its parameters."""
        return self.update, self.update_parameters([change.state for change in changes])

    def insert_parameters(self, states: Sequence[S]) -> Parameters:
        raise NotImplementedError

    def update_parameters(self, states: Sequence[S]) -> Parameters:
        raise NotImplementedError
