"""Limits with real processes: two services on one database let in as many as one would."""

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest

from tests.support.committer import rows
from tests.support.running.processes import SECONDS_MAX, Running

LINE = "/api/restaurants/trattoria"
TICKETS = "SELECT count(*) FROM log WHERE topic = 'ticket.created'"


class Counters(Running):
    def __init__(self, conninfo: str, key_file: Path) -> None:
        variables = {"DATABASE_URL": conninfo, "DAYBOOK_GUEST_KEY_FILE": str(key_file)}
        super().__init__("serve", "--port", "0", **variables)

    def close(self) -> None:
        self.end()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "guest.key"
    path.write_bytes(b64encode(bytes(range(32))))
    path.chmod(0o600)
    return path


@pytest.fixture
def two(database: str, key_file: Path) -> Iterator[list[Counters]]:
    with ExitStack() as stack:
        services = [stack.enter_context(closing(Counters(database, key_file))) for _ in range(2)]
        opened = httpx2.post(
            f"{services[0].url}/api/restaurants", json={"slug": "trattoria", "name": "Trattoria"}
        )
        assert opened.status_code == 201, opened.text
        yield services


async def all_at_once(services: list[Counters], mobiles: list[str]) -> Counter[int]:
    """One request for each mobile, by turns to either service, all under way together."""
    limits = httpx2.Limits(max_connections=len(mobiles))
    async with httpx2.AsyncClient(limits=limits, timeout=SECONDS_MAX) as client:

        async def join(place: int, mobile: str) -> int:
            url = services[place % 2].url + f"{LINE}/tickets"
            guest = {"name": "Ada", "mobileNumber": mobile, "partySize": 2}
            return int((await client.post(url, json=guest)).status_code)

        return Counter(await asyncio.gather(*(join(*one) for one in enumerate(mobiles))))


def test_of_a_hundred_at_once_exactly_the_limits_are_let_in_and_a_restart_forgets_none(
    two: list[Counters], database: str, key_file: Path
) -> None:
    # S2-06, S2-30, D-39
    assert asyncio.run(all_at_once(two, ["+491701234567"] * 100)) == {201: 3, 429: 97}
    # Three of the twenty of this address are used up; those that were refused used up none.
    others = [f"+49171{number:07d}" for number in range(100)]
    assert asyncio.run(all_at_once(two, others)) == {201: 17, 429: 83}
    assert rows(database, TICKETS) == [(20,)]

    two[0].process.kill()
    two[0].process.wait(SECONDS_MAX)
    with closing(Counters(database, key_file)) as restarted:
        told = asyncio.run(all_at_once([restarted, two[1]], ["+491701234567"] * 4))
    assert told == {429: 4}
    assert rows(database, TICKETS) == [(20,)]


def test_a_service_with_another_key_does_not_start(
    two: list[Counters], database: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.key"
    other.write_bytes(b64encode(bytes(32)))
    other.chmod(0o600)
    with closing(Counters(database, other)) as refused:
        assert refused.process.wait(SECONDS_MAX) == 2
    assert not two[0].has_ended

    (sentence,) = refused.output.splitlines()
    assert sentence.startswith("Guests in this database are encrypted with the key ")
    assert sentence.endswith("set DAYBOOK_GUEST_KEY_FILE to the key file of the first instance.")
