"""Detection of connections that the server has closed."""

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from daybook.eventlog.postgres.connections import (
    check_connection,
    configure,
    connect,
    reader_conninfo,
)
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

END_READERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def test_a_connection_that_the_server_has_closed_is_found_without_a_query(
    database: str,
) -> None:
    connection = await connect(reader_conninfo(database))
    await check_connection(connection)
    rows(database, END_READERS)

    with pytest.raises(psycopg.OperationalError):
        await check_connection(connection)
    await connection.close()


async def test_a_pool_hands_out_no_connection_that_the_server_has_closed(database: str) -> None:
    pool = AsyncConnectionPool(
        reader_conninfo(database),
        kwargs={"autocommit": True},
        min_size=2,
        max_size=2,
        configure=configure,
        check=check_connection,
        open=False,
    )
    async with pool:
        for _ in range(3):
            await pool.wait()
            rows(database, END_READERS)
            for _ in range(4):
                async with pool.connection() as connection:
                    assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
