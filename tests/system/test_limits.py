"""Limits with real processes: two services on one database let in as many as one would."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.committer import rows
from tests.support.running.processes import SECONDS_MAX
from tests.support.running.service_process import ServiceProcess, write_guest_key

WAITLIST = "/api/restaurants/trattoria"
TICKETS = "SELECT count(*) FROM log WHERE topic = 'ticket.created'"


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    return write_guest_key(tmp_path / "guest.key", bytes(range(32)))


def serve(conninfo: str, key_file: str) -> ServiceProcess:
    return ServiceProcess(conninfo, DAYBOOK_GUEST_KEY_FILE=key_file)


@pytest.fixture
def two(database: str, key_file: str) -> Iterator[list[ServiceProcess]]:
    with serve(database, key_file) as first, serve(database, key_file) as second:
        first.ask("POST", "/api/restaurants", {"slug": "trattoria", "name": "Trattoria"})
        yield [first, second]


async def all_at_once(services: list[ServiceProcess], mobiles: list[str]) -> Counter[int]:
    """One request for each mobile, by turns to either service, all under way together."""
    limits = httpx2.Limits(max_connections=len(mobiles))
    async with httpx2.AsyncClient(limits=limits, timeout=SECONDS_MAX) as client:

        async def join(number: int, mobile: str) -> int:
            url = services[number % 2].url + f"{WAITLIST}/tickets"
            guest = {"name": "Ada", "mobileNumber": mobile, "partySize": 2}
            return int((await client.post(url, json=guest)).status_code)

        return Counter(await asyncio.gather(*(join(*one) for one in enumerate(mobiles))))


def test_of_a_hundred_at_once_exactly_the_limits_are_let_in_and_a_restart_forgets_none(
    two: list[ServiceProcess], database: str, key_file: str
) -> None:
    # S2-06, S2-30, D-39
    assert asyncio.run(all_at_once(two, ["+491701234567"] * 100)) == {201: 3, 429: 97}
    # Three of the twenty of this address are used up; those that were refused used up none.
    others = [f"+49171{number:07d}" for number in range(100)]
    assert asyncio.run(all_at_once(two, others)) == {201: 17, 429: 83}
    assert rows(database, TICKETS) == [(20,)]

    two[0].kill()
    with serve(database, key_file) as restarted:
        statuses = asyncio.run(all_at_once([restarted, two[1]], ["+491701234567"] * 4))
    assert statuses == {429: 4}
    assert rows(database, TICKETS) == [(20,)]


def test_a_service_with_another_key_does_not_start(
    two: list[ServiceProcess], database: str, tmp_path: Path
) -> None:
    with serve(database, write_guest_key(tmp_path / "other.key")) as refused:
        assert refused.wait() == 2
    assert not two[0].has_ended

    (sentence,) = refused.output.splitlines()
    assert sentence.startswith("Guests in this database are encrypted with the key ")
    assert sentence.endswith("set DAYBOOK_GUEST_KEY_FILE to the key file of the first instance.")
