"""Idempotency and failures of the stand-ins, and the settings of the example."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from examples.bookings.serving import answering, listen, url_of
from examples.bookings.settings import BadSettings, load
from examples.bookings.standins import StandIns, new_standins

pytestmark = pytest.mark.anyio

EMAIL = {"from": "a@example.com", "to": ["b@example.com"], "subject": "Hello", "text": "!"}
KEYED = {"Idempotency-Key": "one"}


@pytest.fixture
def standins() -> StandIns:
    return new_standins()


@pytest.fixture
async def http(standins: StandIns) -> AsyncIterator[httpx2.AsyncClient]:
    with listen() as listener:
        async with (
            answering({listener: standins.app}),
            httpx2.AsyncClient(base_url=url_of(listener)) as client,
        ):
            yield client


async def test_one_key_has_one_effect(http: httpx2.AsyncClient, standins: StandIns) -> None:
    answers = [await http.post("/mail/emails", json=EMAIL, headers=KEYED) for _ in range(3)]
    other = await http.post("/mail/emails", json={**EMAIL, "text": "?"}, headers=KEYED)

    assert {(one.status_code, one.text) for one in answers} == {(200, '{"id":"message-1"}')}
    assert other.status_code == 409
    assert len(standins.mail.messages) == 1
    body = (await http.get("/mail/received")).json()["received"]
    assert [one["key"] for one in body] == ["one"] * 4


async def test_a_vendor_fails_as_often_and_as_configured(
    http: httpx2.AsyncClient, standins: StandIns
) -> None:
    for how in ("500", "429", "400", "lost"):
        await http.post("/mail/failures", json={"next": 1, "how": how})
    await http.post("/pos/failures", json={"next": 1, "how": "500"})

    statuses = [(await http.post("/mail/emails", json=EMAIL)).status_code for _ in range(3)]
    assert statuses == [500, 429, 400]
    assert standins.mail.messages == []
    with pytest.raises(httpx2.RemoteProtocolError):
        await http.post("/mail/emails", json=EMAIL)
    assert len(standins.mail.messages) == 1
    assert (await http.post("/mail/emails", json=EMAIL)).status_code == 200

    refused = await http.post("/mail/failures", json={"next": 0, "how": "500"})
    assert refused.status_code == 400


def test_a_flag_is_on_only_if_it_is_true() -> None:
    # S4-43
    assert load({"INVOICING_ENABLED": "true", "SEND_EMAILS": "true"}).send_emails
    for text in ("", "TRUE", "1", "yes", "false"):
        settings = load({"INVOICING_ENABLED": text, "SEND_EMAILS": text})
        assert (settings.invoicing_enabled, settings.send_emails) == (False, False)


def test_settings_hold_recipients_and_addresses() -> None:
    # S4-30, S4-43
    settings = load({"EMAIL_ADMIN_TO": " a@example.com, ,b@example.com ", "BOOKINGS_PORT": "81"})

    assert settings.email_admin_to == ("a@example.com", "b@example.com")
    assert settings.public_url == "http://127.0.0.1:81"
    addresses = {"BASE_URL": "http://localhost:1", "APP_URL": "http://localhost:2/"}
    assert load(addresses).public_url == "http://localhost:2"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"BOOKINGS_PORT": "ninety"}, "BOOKINGS_PORT"),
        ({"BOOKINGS_LEASE_SECONDS": "0"}, "BOOKINGS_LEASE_SECONDS"),
        ({"APP_URL": "https://rent.example.com"}, "INVOICE_LINK_SECRET"),
    ],
)
def test_settings_that_cannot_be_are_refused(variables: dict[str, str], named: str) -> None:
    with pytest.raises(BadSettings, match=named):
        load(variables)
