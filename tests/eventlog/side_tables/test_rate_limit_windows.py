"""Rate limits hold over any window and for all processes, and refusals use up nothing."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

from daybook.eventlog.postgres.connections import (
    connect,
    owner_conninfo,
    reader_conninfo,
    relaxed_writer_conninfo,
)
from daybook.eventlog.side_tables.rate_limit_windows import (
    DELETE_EXPIRED_ADMISSIONS,
    Limit,
    LimitRequest,
    LimitState,
    delete_expired,
    give_back,
    try_acquire,
)
from tests.support.committer import rows
from tests.support.running.processes import Process

pytestmark = pytest.mark.anyio

PHONE = Limit("per-phone", 3, 3600)
ADDRESS = Limit("per-address", 20, 60)

GROW_OLDER = """
UPDATE admissions
SET times = ARRAY(SELECT one - %(seconds)s * interval '1 second' FROM unnest(times) AS one),
    expires_at = expires_at - %(seconds)s * interval '1 second'
"""
FILL = """
INSERT INTO admissions (limit_name, key, times, expires_at)
SELECT 'per-phone', 'k' || number, '{}', clock_timestamp() + %(seconds)s * interval '1 second'
FROM generate_series(1, %(count)s) AS number
"""
EXPIRE = "UPDATE admissions SET expires_at = 'epoch' WHERE key = %(key)s"
TIMES = "SELECT limit_name, key, cardinality(times) FROM admissions ORDER BY 1, 2"

# A separate process: 50 requests, 10 at a time.
ASK = """
import asyncio, sys
from daybook.eventlog.side_tables.rate_limit_windows import Limit, LimitRequest, try_acquire
from daybook.eventlog.postgres.connections import connect, relaxed_writer_conninfo

async def ask(connection, tries):
    requests = [LimitRequest(Limit("per-phone", int(sys.argv[2]), 3600), "ada"),
                LimitRequest(Limit("per-address", 1000, 60), "door")]
    return [(await try_acquire(connection, requests))[0].is_admitted for _ in range(tries)]

async def main():
    connections = [await connect(relaxed_writer_conninfo(sys.argv[1])) for _ in range(10)]
    print("ready", flush=True)
    sys.stdin.readline()
    results = await asyncio.gather(*(ask(connection, 5) for connection in connections))
    print(sum(map(sum, results)))

asyncio.run(main())
"""


def asked(phone: str = "ada", address: str = "door") -> list[LimitRequest]:
    return [LimitRequest(PHONE, phone), LimitRequest(ADDRESS, address)]


def is_admitted(states: Sequence[LimitState]) -> bool:
    (results,) = {one.is_admitted for one in states}
    return results


async def ask(connection: AsyncConnection[TupleRow], phone: str, address: str = "door") -> bool:
    return is_admitted(await try_acquire(connection, asked(phone, address)))


async def test_a_limit_admits_exactly_its_count(database: str) -> None:
    # S2-28
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        results = [await ask(connection, "ada") for _ in range(10)]

    assert results == [True] * 3 + [False] * 7


async def test_a_refusal_by_one_limit_uses_up_no_other_limit(database: str) -> None:
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        for phone in ("ada", "ada", "ada", "ada", "ada", "bob"):
            await ask(connection, phone)

    assert rows(database, TIMES) == [
        ("per-address", "door", 4),
        ("per-phone", "ada", 3),
        ("per-phone", "bob", 1),
    ]


async def test_a_refusal_leaves_no_row(database: str) -> None:
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        for number in range(20):
            assert await ask(connection, f"guest {number}")
        assert not await ask(connection, "one too many")

    assert ("per-phone", "one too many") not in {row[:2] for row in rows(database, TIMES)}


@pytest.mark.parametrize(("seconds", "is_let_in"), [(3590, False), (3600, True)])
async def test_a_limit_admits_again_when_the_oldest_attempt_leaves_the_window(
    database: str, seconds: int, is_let_in: bool
) -> None:
    # S2-32
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        for _ in range(3):
            await ask(connection, "ada")
        rows(database, GROW_OLDER, {"seconds": seconds})
        assert await ask(connection, "ada") is is_let_in


async def test_a_limit_admits_again_after_the_announced_wait(database: str) -> None:
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        for _ in range(3):
            await ask(connection, "ada")
            rows(database, GROW_OLDER, {"seconds": 600})
        refused = await try_acquire(connection, asked("ada"))
        (phone,) = (one for one in refused if not one.has_room)
        assert (phone.name, phone.remaining) == ("per-phone", 0)
        assert 1790 < phone.seconds <= 1800

        rows(database, GROW_OLDER, {"seconds": phone.seconds - 5})
        assert not await ask(connection, "ada")
        rows(database, GROW_OLDER, {"seconds": 5})
        assert await ask(connection, "ada")


async def test_attempts_at_one_command_count_once(database: str) -> None:
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        first, *others = [uuid7() for _ in range(4)]
        for _ in range(5):
            assert is_admitted(await try_acquire(connection, asked(), first))
        assert [is_admitted(await try_acquire(connection, asked(), one)) for one in others] == [
            True,
            True,
            False,
        ]
        # A repeated command still counts as one of three.
        (phone, _) = sorted(
            await try_acquire(connection, asked(), first), key=lambda one: -len(one.name)
        )
        assert is_admitted([phone])


async def test_a_repeated_command_counts_from_its_latest_attempt(database: str) -> None:
    # I-31: the effect may be as late as the last attempt.
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        command = uuid7()
        assert is_admitted(await try_acquire(connection, asked(), command))
        rows(database, GROW_OLDER, {"seconds": 3000})
        assert is_admitted(await try_acquire(connection, asked(), command))
        rows(database, GROW_OLDER, {"seconds": 3000})
        results = [await ask(connection, "ada") for _ in range(3)]
    assert results == [True, True, False]


async def test_a_refunded_attempt_can_be_used_again(database: str) -> None:
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        for _ in range(5):
            command = uuid7()
            results = await try_acquire(connection, asked(), command)
            assert is_admitted(results)
            await give_back(connection, asked(), command_id=command, noted_at=results[0].noted_at)
        assert {count for _, _, count in rows(database, TIMES)} == {0}
        for _ in range(2):
            await give_back(connection, asked(), command_id=uuid7(), noted_at=None)
        assert [await ask(connection, "ada") for _ in range(4)] == [True] * 3 + [False]


async def test_a_refund_leaves_the_other_attempt_of_the_command(database: str) -> None:
    # I-31: the other attempt may have taken effect.
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        command = uuid7()
        for turn in (0, 1):
            twins = [await try_acquire(connection, asked(str(turn)), command) for _ in range(2)]
            noted_at = twins[turn][0].noted_at
            await give_back(connection, asked(str(turn)), command_id=command, noted_at=noted_at)
            assert ("per-phone", str(turn), 1) in rows(database, TIMES)


async def test_attempts_of_an_earlier_version_count_too(database: str) -> None:
    earlier = """
    SELECT is_admitted FROM admit('{per-phone}', '{ada}', '{3}', '{3600}')
    """
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        command = uuid7()
        assert rows(database, earlier) == [(True,)]
        results = await try_acquire(connection, asked(), command)
        assert rows(database, earlier) == [(True,)]
        assert not await ask(connection, "ada")
        await give_back(connection, asked(), command_id=command, noted_at=results[0].noted_at)
        assert await ask(connection, "ada")
        assert rows(database, earlier) == [(False,)]


async def test_rows_of_an_earlier_version_belong_to_no_command(database: str) -> None:
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        for _ in range(2):
            await ask(connection, "ada")
        rows(database, "UPDATE admissions SET commands = '{}'")
        command = uuid7()
        assert is_admitted(await try_acquire(connection, asked(), command))
        assert is_admitted(await try_acquire(connection, asked(), command))
        assert not await ask(connection, "ada")


async def test_a_lowered_limit_counts_earlier_attempts(
    database: str,
) -> None:
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        for _ in range(3):
            await ask(connection, "ada")
            rows(database, GROW_OLDER, {"seconds": 600})
        (one,) = await try_acquire(connection, [LimitRequest(Limit("per-phone", 1, 3600), "ada")])

    # The last of them came ten minutes ago.
    assert not one.is_admitted
    assert 2990 < one.seconds <= 3000


def test_of_100_concurrent_attempts_in_two_processes_the_limit_admits_its_count(
    own_database: str,
) -> None:
    """S2-30, D-39: check-then-write would admit many more."""
    for limit in (3, 40):
        program = [sys.executable, "-c", ASK, own_database, str(limit)]
        with (
            Process(program, stdin=subprocess.PIPE) as one,
            Process(program, stdin=subprocess.PIPE) as other,
        ):
            assert one.says("ready"), one.output
            assert other.says("ready"), other.output
            for process in (one, other):
                process.write("\n")
            assert (one.wait(), other.wait()) == (0, 0)

        assert sum(int(process.lines[-1]) for process in (one, other)) == limit
        found = rows(own_database, TIMES)
        assert found == [("per-address", "door", limit), ("per-phone", "ada", limit)]
        rows(own_database, "DELETE FROM admissions")


async def test_attempts_that_share_limits_in_any_order_never_deadlock(
    own_database: str,
) -> None:
    """S2-21: rows are locked in one order for any order of the limits, and deletion does not
    wait."""
    connections = [await connect(relaxed_writer_conninfo(own_database)) for _ in range(8)]

    async def press(number: int) -> None:
        for turn in range(60):
            one = asked(f"guest {(number + turn) % 3}", f"door {turn % 3}")
            await try_acquire(connections[number], one if turn % 2 else [*reversed(one)])
            if turn % 7 == number % 7:
                # Locks a single row, so that the test itself cannot deadlock.
                await connections[number].execute(EXPIRE, {"key": f"door {turn % 3}"})
                await delete_expired(connections[number], limit=2)

    # A deadlock raises, and so does a wait for a lock of more than 2 seconds.
    await asyncio.gather(*(press(number) for number in range(8)))
    for connection in connections:
        await connection.close()


class Model:
    """A model of the limits: every admission with its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times: dict[tuple[str, str], list[float]] = {}

    def ask(self, asked: Sequence[LimitRequest]) -> bool:
        recent = {
            (one.limit.name, one.key): [
                time
                for time in self.times.get((one.limit.name, one.key), [])
                if time > self.now - one.limit.seconds
            ]
            for one in asked
        }
        if any(len(recent[one.limit.name, one.key]) >= one.limit.count_max for one in asked):
            return False
        for limit, times in recent.items():
            self.times[limit] = [*times, self.now]
        return True


Steps = list[tuple[int, str, str]]
# Spans far from the edges of both windows, because the clock advances during the test.
STEPS = some.lists(
    some.tuples(
        some.sampled_from([0, 25, 1000]), some.sampled_from("ab"), some.sampled_from(["x", "y"])
    ),
    max_size=25,
)


@given(steps=STEPS)
@settings(max_examples=30, deadline=None)
def test_limits_agree_with_their_model_for_any_sequence_of_attempts(
    shared_database: str, steps: Steps
) -> None:
    """D-39: a limiter that never limits, or expires too late, differs at once."""
    asyncio.run(compare(shared_database, steps))


async def compare(database: str, steps: Steps) -> None:
    rows(database, "DELETE FROM admissions")
    small = Limit("per-address", 4, 60)
    model = Model()
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        for seconds, phone, address in steps:
            model.now += seconds
            rows(database, GROW_OLDER, {"seconds": seconds})
            one = [LimitRequest(PHONE, phone), LimitRequest(small, address)]
            assert is_admitted(await try_acquire(connection, one)) == model.ask(one)
    rows(database, "DELETE FROM admissions")


async def test_only_expired_rows_are_deleted(
    database: str,
) -> None:
    # S2-33
    async with await connect(relaxed_writer_conninfo(database)) as connection:
        await ask(connection, "ada")
        rows(database, GROW_OLDER, {"seconds": 3599})
        await ask(connection, "bob", "another door")
        while await delete_expired(connection, limit=500):
            pass
        assert {key for _, key, _ in rows(database, TIMES)} >= {"ada", "bob", "another door"}
        assert "door" not in {key for _, key, _ in rows(database, TIMES)}

        rows(database, GROW_OLDER, {"seconds": 7200})
        while await delete_expired(connection, limit=500):
            pass
        assert rows(database, TIMES) == []


async def test_deletion_does_not_wait_for_locked_rows(database: str) -> None:
    rows(database, FILL, {"seconds": -1, "count": 2})
    with psycopg.connect(owner_conninfo(database)) as holder:
        holder.execute("SELECT FROM admissions WHERE key = 'k1' FOR UPDATE")
        async with await connect(reader_conninfo(database)) as connection:
            assert await asyncio.wait_for(delete_expired(connection, limit=10), 1) == 1

    assert [key for _, key, _ in rows(database, TIMES)] == ["k1"]


async def test_with_nothing_to_forget_a_look_is_a_glance_at_an_index(own_database: str) -> None:
    # S2-23
    rows(own_database, FILL, {"seconds": 60, "count": 20_000})
    rows(own_database, "VACUUM ANALYZE admissions")
    async with await connect(reader_conninfo(own_database)) as connection:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {DELETE_EXPIRED_ADMISSIONS}"
        plans = await (await connection.execute(explain.encode(), {"limit": 500})).fetchall()
    ((plan,),) = plans
    top: Any = plan[0]["Plan"]

    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 10, json.dumps(plan)
