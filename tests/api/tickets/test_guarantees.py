"""Guarantees of the waitlist: atomicity, any instance, latency."""

import asyncio
import time
from collections.abc import AsyncIterator
from statistics import quantiles

import psycopg
import pytest

from tests.support.api_tickets import (
    WAITLIST,
    act,
    call_next,
    join,
    look,
    open_counter_api,
    open_restaurant,
    party,
)
from tests.support.asgi_client import Api
from tests.support.committer import fold_of_the_log, live_rows, rows

pytestmark = pytest.mark.anyio

BREAK = """
CREATE FUNCTION break_it() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'somebody pulled the plug'; END $$;
CREATE TRIGGER break_it BEFORE INSERT ON daybook.ticket_counts
    FOR EACH STATEMENT EXECUTE FUNCTION break_it()
"""
MEND = "DROP FUNCTION break_it() CASCADE"


@pytest.fixture
async def api(own_database: str) -> AsyncIterator[Api]:
    async with open_counter_api(own_database) as opened:
        await open_restaurant(opened)
        yield opened


# S2-02
async def test_a_join_that_breaks_half_way_leaves_nothing_behind(
    api: Api, own_database: str
) -> None:
    with psycopg.connect(own_database, autocommit=True) as owner:
        owner.execute(BREAK)
        # A fault of ours, which a server answers with 500.
        with pytest.raises(psycopg.errors.RaiseException):
            await api.post(f"{WAITLIST}/tickets", party(1, idempotencyKey="k"))
        owner.execute(MEND)
    assert rows(own_database, "SELECT position FROM log WHERE topic = 'ticket.created'") == []

    again = await api.post(f"{WAITLIST}/tickets", party(1, idempotencyKey="k"))
    assert again.status == 201
    assert again.json["ticket"]["tokenNumber"] == "RDEMO123-000001"
    assert live_rows(own_database) == fold_of_the_log(own_database)


# S2-37
@pytest.mark.usefixtures("short_deadline")
async def test_a_join_that_the_database_is_too_slow_for_is_sent_again_and_happens_once(
    api: Api, own_database: str
) -> None:
    with psycopg.connect(own_database) as holder:
        holder.execute("SELECT FROM daybook.restaurants FOR UPDATE")
        late = await api.post(f"{WAITLIST}/tickets", party(1, idempotencyKey="k"))
    assert late.status == 503
    assert late.headers["retry-after"] == "1"

    again = await api.post(f"{WAITLIST}/tickets", party(1, idempotencyKey="k"))
    assert again.status == 201
    assert again.json["ticket"]["tokenNumber"] == "RDEMO123-000001"
    assert len(rows(own_database, "SELECT position FROM log WHERE topic = 'ticket.created'")) == 1


# S2-35
async def test_every_step_of_a_guest_may_be_taken_at_another_instance(
    api: Api, own_database: str
) -> None:
    async with open_counter_api(own_database) as other:
        ticket = await join(api)
        assert (await look(other, ticket))["position"] == 1
        assert (await call_next(other))["id"] == ticket["id"]
        assert (await look(api, ticket))["status"] == "CALLED"
        assert (await act(api, ticket, "seat")).status == 200
        assert (await look(other, ticket))["status"] == "SEATED"
    async with open_counter_api(own_database) as started_anew:
        assert (await look(started_anew, ticket))["status"] == "SEATED"


# S2-16 S2-20 S2-27
@pytest.mark.alone
async def test_joining_and_calling_take_less_than_the_source_allows(api: Api) -> None:
    """The source's bars; `./run bench tickets` measures against ours, which are lower."""
    joins, calls = [], []
    for first in range(1, 200, 4):
        began = time.perf_counter()
        await asyncio.gather(*(join(api, first + n) for n in range(4)))
        joins.append(time.perf_counter() - began)
        began = time.perf_counter()
        await call_next(api)
        calls.append(time.perf_counter() - began)
    assert quantiles(joins, n=20)[-1] < 0.2
    assert quantiles(calls, n=20)[-1] < 0.1
