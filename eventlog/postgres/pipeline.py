"""A link: one connection in pipeline mode. A round trip is one write and one read, however many
statements it has.

It speaks to libpq through psycopg's own low-level interface. psycopg's cursors do much that a
batch has no use for (they ask the event loop about the socket before every statement, convert
queries and parameters each time), which took half of the committer's time. Here a statement is
prepared at its first use, and its parameters are packed by whoever has them.
"""

import re
from collections.abc import Sequence
from typing import Self
from uuid import UUID

from psycopg import AsyncConnection, adapt, errors
from psycopg.abc import PQGen, Transformer
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow

from daybook.eventlog.postgres.binary_arrays import PackedArray
from daybook.eventlog.postgres.connections import connect

Connection = AsyncConnection[TupleRow]
Parameter = PackedArray | int | str | UUID | None

_PLACEHOLDER = re.compile(r"%\((\w+)\)b")


class Statement:
    """A query as the server wants it: prepared under a name, with numbered parameters."""

    __slots__ = ("formats", "name", "parameters", "text")

    def __init__(self, name: bytes, query: str) -> None:
        self.name = name
        self.parameters = list(dict.fromkeys(_PLACEHOLDER.findall(query)))
        self.formats = [Format.BINARY] * len(self.parameters)
        numbers = {parameter: f"${n}" for n, parameter in enumerate(self.parameters, start=1)}
        self.text = _PLACEHOLDER.sub(lambda found: numbers[found[1]], query).encode()


class PendingResult:
    """What the server answers to one statement: there after the next `sync`."""

    __slots__ = ("_transformer", "result")

    def __init__(self, transformer: Transformer) -> None:
        self._transformer = transformer
        self.result: PGresult | None = None

    def rows(self) -> list[TupleRow]:
        assert self.result is not None, "rows are there only after a sync"
        self._transformer.set_pgresult(self.result, format=Format.BINARY)
        return self._transformer.load_rows(0, self.result.ntuples, tuple)


class Pipeline:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._transformer: Transformer = adapt.Transformer(connection)
        self._statements: dict[str, Statement] = {}
        self._statements_count = 0
        self._expected: list[PendingResult] = []

    @classmethod
    async def open(cls, conninfo: str) -> Self:
        return cls.on(await connect(conninfo))

    @classmethod
    def on(cls, connection: Connection) -> Self:
        """From here on the connection is this link's alone."""
        connection.pgconn.enter_pipeline_mode()
        return cls(connection)

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def add(self, query: str, **parameters: Parameter) -> PendingResult:
        """Adds one of our constant statements to the round trip that `sync` will make."""
        statement = self._statements.get(query) or self._prepare(query)
        packed = [_packed(parameters[name]) for name in statement.parameters]
        self._pgconn.send_query_prepared(
            statement.name, packed, statement.formats, result_format=Format.BINARY
        )
        return self._expect()

    def flush(self) -> None:
        """Sends what was queued as far as the socket takes it now: the server begins, while more
        is being packed for the same round trip."""
        self._pgconn.flush()

    async def sync(self) -> None:
        """Sends what was queued and waits for all the answers. The first error is raised."""
        self._pgconn.pipeline_sync()
        self._expect()
        expected, self._expected = self._expected, []
        await self.connection.wait(self._exchange(expected))

    async def roll_back(self) -> None:
        """After an error; also forgets all statements, in case it was about one of them."""
        self._statements.clear()
        self._expected.clear()
        for command in (b"ROLLBACK", b"DEALLOCATE ALL"):
            self._pgconn.send_query_params(command, None)
            self._expect()
        await self.sync()

    async def close(self) -> None:
        await self.connection.close()

    def _prepare(self, query: str) -> Statement:
        self._statements_count += 1
        statement = Statement(f"daybook_{self._statements_count}".encode(), query)
        self._pgconn.send_prepare(statement.name, statement.text)
        self._expect()
        self._statements[query] = statement
        return statement

    def _expect(self) -> PendingResult:
        answer = PendingResult(self._transformer)
        self._expected.append(answer)
        return answer

    def _exchange(self, expected: Sequence[PendingResult]) -> PQGen[None]:
        """Writes at once, and waits for the socket only if that was not enough."""
        yield from send(self._pgconn)
        failed: PGresult | None = None
        for answer in expected:
            results = yield from fetch_many(self._pgconn)
            answer.result = results[-1]
            if failed is None and answer.result.status == ExecStatus.FATAL_ERROR:
                failed = answer.result
        if failed is not None:
            raise errors.error_from_result(failed)


def _packed(parameter: Parameter) -> bytes | None:
    match parameter:
        case bytes() | None:
            return parameter
        case int():
            return parameter.to_bytes(8, "big", signed=True)
        case UUID():
            return parameter.bytes
    return parameter.encode()
