"""`daybook explain`, `as-of`, `diff` and `doctor`."""

import json

import pytest

from daybook.eventlog.reading.epochs import READ_EPOCH
from tests.support.committer import open_submitter, rows
from tests.support.jobs import Workshop
from tests.support.running.processes import daybook

pytestmark = pytest.mark.anyio


async def test_explain_shows_why_an_order_waits_and_its_events(database: str) -> None:
    async with open_submitter(database) as submitter:
        order = await submitter.order()
    result = daybook("explain", str(order.id), DATABASE_URL=database)
    assert result.returncode == 0, result.stderr
    assert f"order {order.id} is PENDING" in result.stdout
    assert "[NoIdleBot]" in result.stdout
    assert "order.created" in result.stdout


def test_explain_of_nothing_says_so(database: str) -> None:
    nothing = "00000000-0000-7000-8000-000000000000"
    result = daybook("explain", nothing, DATABASE_URL=database)
    assert (result.returncode, result.stdout) == (1, "")
    assert nothing in result.stderr


async def test_as_of_and_diff_show_the_past(database: str) -> None:
    # SX-05
    async with open_submitter(database) as submitter:
        order = await submitter.order()
        taken = await submitter.claim(await submitter.bot())
        assert taken is not None
        await submitter.complete(taken)
        await Workshop(submitter).job()
    past = daybook("as-of", "1", "--json", DATABASE_URL=database)
    assert [one["status"] for one in json.loads(past.stdout)["orders"]] == ["PENDING"]
    jobs = daybook("as-of", "2100-01-01T00:00:00Z", "--kind", "jobs", DATABASE_URL=database)
    assert "1 jobs" in jobs.stdout
    changed = daybook("diff", "1", "6", DATABASE_URL=database)
    assert f"order {order.id}: PENDING → COMPLETE" in changed.stdout
    assert daybook("as-of", "soon", DATABASE_URL=database).returncode == 2


async def test_the_doctor_names_each_problem_and_its_next_step(database: str) -> None:
    # S4-41, SX-05
    async with open_submitter(database) as submitter:
        order = await submitter.order()
    rows(database, "UPDATE orders SET attempts = 7")
    result = daybook("doctor", DATABASE_URL=database)
    assert result.returncode == 1
    assert f"order {order.id} differs in attempts" in result.stdout
    assert "daybook rebuild orders" in result.stdout
    assert "No service runs timers" in result.stdout
    assert "PostgreSQL" in result.stdout


# S2-50
async def test_the_doctor_finds_an_index_that_is_not_there_and_says_how_to_make_it(
    own_database: str,
) -> None:
    assert "All indexes of the migrations exist." in doctor(own_database)
    rows(own_database, "DROP INDEX daybook.tickets_line_idx")
    result = doctor(own_database)
    assert "1 are missing or invalid" in result
    create = "CREATE UNIQUE INDEX tickets_line_idx ON tickets (restaurant_id, status, place)"
    assert create in result
    rows(own_database, create)
    assert "All indexes of the migrations exist." in doctor(own_database)


# A follower that has not moved for an hour, because nothing happened.
REST = """
INSERT INTO followers (name, position, count, digest, updated_at)
VALUES ('finished_orders', 0, 0, '', clock_timestamp() - interval '1 hour')
"""
# As a replica, the session is not stopped by the trigger that keeps history from being rewritten.
AGE = """
SET session_replication_role = replica;
UPDATE stored_events SET recorded_at = recorded_at - interval '1 minute'
"""


async def test_the_doctor_worries_about_followers_when_an_event_has_waited_and_not_at_a_new_one(
    database: str,
) -> None:
    rows(database, REST)
    async with open_submitter(database) as submitter:
        await submitter.order()
    assert "All read models keep up with the log." in doctor(database)
    rows(database, AGE)
    assert "finished_orders is 1 positions behind." in doctor(database)


RETIRE = """
INSERT INTO followers (name, position, count, digest, updated_at)
VALUES ('guest_book', 0, 0, '', clock_timestamp() - interval '1 hour')
"""


async def test_a_follower_of_another_version_is_named_as_retired_and_not_as_behind(
    database: str,
) -> None:
    """After an upgrade no process moves this cursor any more, and no read model needs it."""
    rows(database, RETIRE)
    async with open_submitter(database) as submitter:
        await submitter.order()
    rows(database, AGE)
    result = doctor(database)
    assert "guest_book of another version: retired" in result
    assert "behind" not in result
    step = "DELETE FROM daybook.followers WHERE name IN ('guest_book');"
    assert step in result
    rows(database, step)
    assert "All read models keep up with the log." in doctor(database)


STOP_NOTIFYING = """
INSERT INTO followers (name, position, count, digest, updated_at)
VALUES ('notifications', 0, 0, '', clock_timestamp() - interval '1 hour')
"""


async def test_a_follower_that_is_turned_off_is_named_as_off_and_not_as_behind(
    database: str,
) -> None:
    rows(database, STOP_NOTIFYING)
    async with open_submitter(database) as submitter:
        await submitter.order()
    rows(database, AGE)
    result = doctor(database)
    assert "notifications: off in this configuration." in result
    assert "behind" not in result
    secret = "whsec_" + "A" * 32
    on = {"DAYBOOK_NOTIFY_URL": "https://hooks.example/", "DAYBOOK_NOTIFY_SECRETS": secret}
    result = " ".join(daybook("doctor", DATABASE_URL=database, **on).stdout.split())
    assert "notifications is 1 positions behind." in result


LEAVE_DEAD_ROWS = """
ALTER TABLE job_types SET (autovacuum_enabled = off);
INSERT INTO job_types SELECT 'email', number::text FROM generate_series(1, 100001) AS number;
DELETE FROM job_types;
SELECT pg_stat_force_next_flush();
"""


def test_the_doctor_notices_dead_rows_that_autovacuum_left(own_database: str) -> None:
    assert "Autovacuum keeps up." in doctor(own_database)
    rows(own_database, LEAVE_DEAD_ROWS)
    result = doctor(own_database)
    assert "job_types has 100,001 dead rows and 0 live ones" in result
    assert "set autovacuum_naptime = '5s' on the server" in result


def doctor(conninfo: str) -> str:
    """In one line, however wide the table is that it prints."""
    return " ".join(daybook("doctor", DATABASE_URL=conninfo).stdout.split())


async def test_the_doctor_mentions_unfinished_imports_and_rebuilds(database: str) -> None:
    healthy = daybook("doctor", DATABASE_URL=database).stdout
    assert "None is unfinished." in healthy
    assert "None was interrupted." in healthy
    rows(database, "INSERT INTO imports (digest, lines_count) VALUES ('', 1204)")
    running = """
    INSERT INTO running_rebuilds
    VALUES (gen_random_uuid(), 1, clock_timestamp(), clock_timestamp(), 'rebuild', 'orders bots')
    """
    rows(database, running)
    result = daybook("doctor", DATABASE_URL=database)
    assert result.returncode == 1
    assert "is unfinished, after 1204 events." in result.stdout
    assert "daybook import FILE" in result.stdout
    assert "A rebuild of orders bots was interrupted" in result.stdout
    assert "Resume: daybook rebuild orders bots." in result.stdout


async def test_the_doctor_names_cursors_that_are_ahead_of_the_log(database: str) -> None:
    # I-34
    async with open_submitter(database) as submitter:
        await submitter.order()
    follow = "INSERT INTO followers (name, position, count, digest) VALUES ('seen', %s, 0, '')"
    rows(database, follow % 1)
    assert "None is ahead of the log." in doctor(database)
    rows(database, "UPDATE followers SET position = 41")
    assert "seen is 40 positions ahead of the log" in doctor(database)


async def test_the_doctor_tells_of_a_failover(database: str) -> None:
    begin = "INSERT INTO log_epochs (number, epoch, position) VALUES (%s, '%s', %s)"
    rows(database, begin % (1, "a.1", 0))
    assert "no service has run since" in doctor(database)
    ((here,),) = rows(database, READ_EPOCH)
    rows(database, begin % (2, here, 7))
    result = doctor(database)
    assert "This is epoch 2" in result
    assert "behind position 7" in result
    assert "audit check" in result
    rows(database, "UPDATE log_epochs SET began_at = now() - interval '8 days'")
    assert "audit check" not in doctor(database)


@pytest.mark.parametrize("kind", ["orders", "jobs"])
async def test_as_of_the_future_says_that_it_is_the_present(database: str, kind: str) -> None:
    async with open_submitter(database) as submitter:
        await submitter.order()
    result = daybook("as-of", "2100-01-01T00:00:00Z", "--kind", kind, DATABASE_URL=database)
    assert result.returncode == 0
    assert "2100-01-01T00:00:00Z is in the future" in result.stderr
    past = daybook("as-of", "1", "--kind", kind, DATABASE_URL=database)
    assert "future" not in past.stderr


async def test_the_doctor_s_findings_can_be_had_as_json(database: str) -> None:
    async with open_submitter(database) as submitter:
        await submitter.order()
    rows(database, "UPDATE orders SET attempts = 7")
    result = daybook("doctor", "--json", DATABASE_URL=database)
    assert result.returncode == 1
    findings = json.loads(result.stdout)["findings"]
    assert {tuple(one) for one in findings} == {("what", "health", "sentence", "nextStep")}
    (orders,) = [one for one in findings if one["what"] == "table orders"]
    assert orders["health"] == "bad"
    assert "differs in attempts" in orders["sentence"]


# At 60 and 80 columns nothing is lost or cut in the middle of a word.
@pytest.mark.parametrize("columns", [60, 80, 132])
async def test_the_doctor_fits_the_terminal(database: str, columns: int) -> None:
    async with open_submitter(database) as submitter:
        await submitter.order()
    rows(database, "UPDATE orders SET attempts = 7")
    terminal = {"COLUMNS": str(columns), "FORCE_COLOR": "1"}
    output = daybook("doctor", DATABASE_URL=database, **terminal).stdout
    long = [line for line in output.splitlines() if len(line) > columns]
    # Only a single word may be wider than its column: an id or the words of a command.
    assert [line for line in long if len(line.split()[-1]) < columns - 45] == []
    findings = json.loads(daybook("doctor", "--json", DATABASE_URL=database).stdout)["findings"]
    one_line = " ".join(output.split())
    for finding in findings:
        if "seconds" not in finding["sentence"] and "free at" not in finding["sentence"]:
            assert " ".join(finding["sentence"].split()) in one_line
