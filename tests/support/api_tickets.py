"""Short functions for the tickets of a restaurant's waitlist, over HTTP."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.support.asgi_client import Answer, Api, open_api

SLUG = "trattoria"
WAITLIST = f"/api/restaurants/{SLUG}"
RESTAURANT = {"slug": SLUG, "name": "Trattoria", "tokenPrefix": "DEMO123"}
# So many come from one address in these tests that its limit would be in the way.
MANY = 100_000


def open_counter_api(conninfo: str, **settings: Any) -> AbstractAsyncContextManager[Api]:
    return open_api(conninfo, **{"requests_per_address_max": MANY, **settings})


async def open_restaurant(api: Api, slug: str = SLUG, **changes: Any) -> Any:
    answer = await api.post("/api/restaurants", {**RESTAURANT, "slug": slug, **changes})
    assert answer.status in (200, 201), answer.body
    return answer.json["restaurant"]


def party(mobile: int = 1, **changes: Any) -> dict[str, Any]:
    usual = {"name": "Ada Lovelace", "mobileNumber": f"+49170{mobile:07d}", "partySize": 2}
    return {**usual, **changes}


async def join(api: Api, mobile: int = 1, *, waitlist: str = WAITLIST, **changes: Any) -> Any:
    answer = await api.post(f"{waitlist}/tickets", party(mobile, **changes))
    assert answer.status == 201, answer.body
    return answer.json["ticket"]


async def call_next(api: Api, waitlist: str = WAITLIST, **body: Any) -> Any:
    answer = await api.post(f"{waitlist}/call-next", body)
    assert answer.status == 200, answer.body
    return answer.json["ticket"]


async def act(api: Api, ticket: Any, deed: str, **body: Any) -> Answer:
    return await api.post(f"{WAITLIST}/tickets/{ticket['id']}/{deed}", body)


async def look(api: Api, ticket: Any, waitlist: str = WAITLIST) -> Any:
    answer = await api.get(f"{waitlist}/tickets/{ticket['id']}")
    assert answer.status == 200, answer.body
    return answer.json["ticket"]
