"""Mapping between the rows of a table and the states of an aggregate, declared column by column.

SQL and conversions are built from the declaration at import. Loading and packing are compiled
functions, because 1,000 rows of 30 columns pass through them in a batch: generic code that looks
each column up takes ten times as long. `tests/projections/live_tables.txt` shows all of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from inspect import Parameter, signature
from textwrap import fill
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar, get_args

from msgspec import Raw, Struct, json
from msgspec.structs import fields
from psycopg.rows import TupleRow

from daybook.eventlog.generated_code import GeneratedCode
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup

R = TypeVar("R", bound=Struct)
Parameters = Mapping[str, Any]
Pack = Callable[[Sequence[Any]], dict[str, Any]]

# `updated_at` of a new aggregate.
AS_CREATED = "unnest(%(created_at)b::timestamptz[])"

_PACKERS: Mapping[str, Callable[[Any], arrays.PackedArray]] = {
    "uuid": arrays.uuids,
    "bigint": arrays.bigints,
    "integer": arrays.integers,
    "smallint": arrays.smallints,
    "float8": arrays.doubles,
    "boolean": arrays.booleans,
    "text": arrays.texts,
    "bytea": arrays.byteas,
    "timestamptz": arrays.timestamps,
    "date": arrays.dates,
}


class Codec(NamedTuple):
    """Conversion of a field to the value of its column and back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def joined_by(separator: str) -> Codec:
    """Texts without the separator, in one text."""
    return Codec(separator.join, lambda text: tuple(text.split(separator)))


class Column(Struct, frozen=True):
    """A column and its field. Enums, raw JSON, and structs in a `bytea` are converted by the type
    of the field, other types by a codec."""

    name: str
    type: str
    field: str | None = None
    """The path of the field in the state, such as `claim.id`; by default the column's name."""

    changes: bool = False
    """Whether later events change it. Other columns are written only by INSERT."""

    initial: str | None = None
    """The SQL value in the row of every new aggregate, if it is always the same: INSERT of new
    aggregates then sends no array for it (2x faster for jobs, `bench jobs`)."""

    codec: Codec | None = None
    value: Callable[[Any], Any] | None = None
    """Computes a column that is written and indexed, but never loaded."""

    @property
    def path(self) -> str:
        return self.field or self.name


def column_list(columns: Iterable[Column]) -> str:
    """The select list that `RowMapping.load` expects."""
    return _list(one.name for one in columns if one.value is None)


class RowMapping(Generic[R]):
    def __init__(
        self,
        name: str,
        state: type[R],
        columns: Iterable[Column],
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        """`constants` are fields that have the same value in every row."""
        self.name = name
        self.state = state
        self.columns = {one.name: one for one in columns}
        self.column_list = column_list(self.columns.values())
        self.select = f"SELECT {self.column_list}\nFROM {name}\n"
        self._code = GeneratedCode()
        self._constants = constants or {}
        self.load: Callable[[TupleRow], R] = self._code.compile(self._load_source())

    @property
    def source(self) -> str:
        """The compiled functions, as text."""
        return "\n".join(self._code.sources)

    @property
    def changing(self) -> list[str]:
        return [one.name for one in self.columns.values() if one.changes]

    def insert_sql(self, initial: Mapping[str, str] | None = None, common: str = "") -> str:
        """Columns in `initial` get that SQL value, others an array. `common` are common tables."""
        inlined = initial or {}
        sent = [name for name in self.columns if name not in inlined]
        values = [*map(self._array, sent), *inlined.values()]
        return (
            f"{_with(common)}INSERT INTO {self.name} ({_list([*sent, *inlined])})\n"
            f"SELECT {_list(values)}\n"
        )

    def update_sql(
        self, names: Iterable[str], values: Mapping[str, str] | None = None, common: str = ""
    ) -> str:
        """Sets the columns from arrays, and the columns in `values` from SQL with the row `new`."""
        sent = ["id", *(name for name in names if name != "id")]
        sets = {**{name: f"new.{name}" for name in sent[1:]}, **(values or {})}
        return (
            f"{_with(common)}UPDATE {self.name}\n"
            f"SET {_list(f'{name} = {value}' for name, value in sets.items())}\n"
            f"FROM (SELECT {_list(map(self._array, sent))})\n"
            f"    AS new ({_list(sent)})\n"
            f"WHERE {equals_by_key_lookup(f'{self.name}.id', 'new.id')}\n"
        )

    def packer(self, names: Iterable[str]) -> Pack:
        """Compiles the function that packs these columns of some states into arrays, by name."""
        columns = [self.columns[name] for name in names]
        pack: Pack = self._code.compile(self._pack_source(columns))
        return pack

    def _array(self, name: str) -> str:
        """One column as `unnest(array)` in the select list. `FROM unnest(a, b, …)` would copy every
        array for every row; with 8 columns that cost an eighth of an append."""
        return f"unnest(%({name})b::{self.columns[name].type}[])"

    def _pack_source(self, columns: Sequence[Column]) -> str:
        lists = {}  # the nested structs, once for all their columns
        packed = []
        for one in columns:
            parents, _, leaf = one.path.rpartition(".")
            states = parents.replace(".", "_") or "states"
            if parents:
                lists[states] = f"    {states} = [one.{parents} for one in states]\n"
            item = f"one.{leaf}"
            if one.value is not None:
                states, item = "states", f"{self._code.name(one.value)}(one)"
            elif encode := self._encode(one):
                item = f"{encode}(one.{leaf})"
            if parents and _is_optional(self.state, parents):
                item = f"None if one is None else {item}"
            pack = self._code.name(_PACKERS[one.type])
            packed.append(f"        {one.name!r}: {pack}([{item} for one in {states}]),\n")
        body = "".join(lists.values())
        return f"def pack(states):\n{body}    return {{\n{''.join(packed)}    }}\n"

    def _load_source(self) -> str:
        named = {one.path: one for one in self.columns.values() if one.value is None}
        built = self._build(self.state, "", named)
        return f"def load(row):\n    ({self.column_list}) = row\n    return {built}\n"

    def _build(self, kind: type[Any], path: str, named: Mapping[str, Column]) -> str:
        """Returns the expression that builds a struct of the loaded columns. Arguments are
        positional where possible, which takes a sixth of the time."""
        arguments: list[str] = []
        is_positional = True
        for parameter in signature(kind).parameters.values():
            value = self._argument(kind, path + parameter.name, named)
            is_positional &= value is not None and parameter.kind is not Parameter.KEYWORD_ONLY
            if value is not None:
                arguments.append(value if is_positional else f"{parameter.name}={value}")
        return f"{self._code.name(kind)}({', '.join(arguments)})"

    def _argument(self, kind: type[Any], path: str, named: Mapping[str, Column]) -> str | None:
        if path in self._constants:
            return self._code.name(self._constants[path])
        if path in named:
            return self._decoded(named[path])
        nested = [one.name for one in named.values() if one.path.startswith(f"{path}.")]
        if not nested:
            return None
        inner = _struct_in(_type_of(kind, path.rpartition(".")[2]))
        built = self._build(inner, f"{path}.", named)
        is_optional = _is_optional(self.state, path)
        return f"(None if {nested[0]} is None else {built})" if is_optional else built

    def _decoded(self, one: Column) -> str:
        kind, is_optional = _plain(_type_at(self.state, one.path))
        if one.codec is not None:
            return f"{self._code.name(one.codec.decode)}({one.name})"
        if isinstance(kind, type) and issubclass(kind, Enum):
            # A dictionary: calling the enum takes four times as long.
            members: dict[Any, Any] = {None: None} if is_optional else {}
            members |= {member.value: member for member in kind}
            return f"{self._code.name(members, kind.__name__)}[{one.name}]"
        if kind is Raw:
            return f"{self._code.name(Raw)}({one.name})"
        if one.type == "bytea":
            decoder = json.Decoder(_type_at(self.state, one.path))
            return f"{self._code.name(decoder.decode)}({one.name})"
        return one.name

    def _encode(self, one: Column) -> str | None:
        if one.codec is not None:
            return self._code.name(one.codec.encode)
        if one.type != "bytea":
            return None
        is_raw = _plain(_type_at(self.state, one.path))[0] is Raw
        return self._code.name(bytes if is_raw else json.encode)


def _list(items: Iterable[str]) -> str:
    return fill(", ".join(items), 100, subsequent_indent="    ", break_long_words=False)


def _with(common: str) -> str:
    return f"WITH {common}\n" if common else ""


def _type_of(kind: type[Any], name: str) -> Any:
    return next(one.type for one in fields(kind) if one.name == name)


def _type_at(kind: type[Any], path: str) -> Any:
    first, _, rest = path.partition(".")
    type_ = _type_of(kind, first)
    return _type_at(_struct_in(type_), rest) if rest else type_


def _plain(type_: Any) -> tuple[Any, bool]:
    """Splits `X | None` into X and True."""
    members = get_args(type_)
    if NoneType not in members:
        return type_, False
    others = [one for one in members if one is not NoneType]
    return (others[0] if len(others) == 1 else type_), True


def _struct_in(type_: Any) -> type[Any]:
    kind: type[Any] = _plain(type_)[0]
    return kind


def _is_optional(kind: type[Any], path: str) -> bool:
    """Whether the struct at this path, or one around it, may be None."""
    steps = path.split(".")
    return any(_plain(_type_at(kind, ".".join(steps[: n + 1])))[1] for n in range(len(steps)))
