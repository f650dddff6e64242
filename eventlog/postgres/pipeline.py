"""One connection in pipeline mode: any number of statements in one round trip.

It uses psycopg's low-level libpq interface, because cursors took half of the committer's time: they
poll the socket and convert query and parameters for every statement. Here each statement is
prepared at its first use, and callers pack the parameters.
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
    """A prepared statement with numbered parameters."""

    __slots__ = ("formats", "name", "parameters", "text")

    def __init__(self, name: bytes, query: str) -> None:
        self.name = name
        self.parameters = list(dict.fromkeys(_PLACEHOLDER.findall(query)))
        self.formats = [Format.BINARY] * len(self.parameters)
        numbers = {parameter: f"${n}" for n, parameter in enumerate(self.parameters, start=1)}
        self.text = _PLACEHOLDER.sub(lambda found: numbers[found[1]], query).encode()


class PendingResult:
    """The result of one statement, available after the next `sync`."""

    __slots__ = ("_transformer", "result")

    def __init__(self, transformer: Transformer) -> None:
        self._transformer = transformer
        self.result: PGresult | None = None

    def rows(self) -> list[TupleRow]:
        assert self.result is not None, "rows are available only after a sync"
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
        """Takes over the connection, which must not be used otherwise afterwards."""
        connection.pgconn.enter_pipeline_mode()
        return cls(connection)

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def add(self, query: str, **parameters: Parameter) -> PendingResult:
        """Adds a constant statement to the next round trip."""
        statement = self._statements.get(query) or self._prepare(query)
        packed = [_packed(parameters[name]) for name in statement.parameters]
        self._pgconn.send_query_prepared(
            statement.name, packed, statement.formats, result_format=Format.BINARY
        )
        return self._expect()

    def flush(self) -> None:
        """Sends added statements as far as the socket accepts them without waiting, so that the
        server starts while the caller packs more."""
        self._pgconn.flush()

    async def sync(self) -> None:
        """Sends all added statements and waits for their results; raises the first error."""
        self._pgconn.pipeline_sync()
        self._expect()
        expected, self._expected = self._expected, []
        await self.connection.wait(self._exchange(expected))

    async def roll_back(self) -> None:
        """Also discards all prepared statements, because one may have caused the error."""
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
        pending = PendingResult(self._transformer)
        self._expected.append(pending)
        return pending

    def _exchange(self, expected: Sequence[PendingResult]) -> PQGen[None]:
        yield from send(self._pgconn)
        failed: PGresult | None = None
        for pending in expected:
            results = yield from fetch_many(self._pgconn)
            pending.result = results[-1]
            if failed is None and pending.result.status == ExecStatus.FATAL_ERROR:
                failed = pending.result
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
