"""Keys in the hands of a test, and the application as their holders see it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from daybook.api.keys.key_admin import ApiKeyAdmin
from daybook.api.keys.key_format import new_key_text, new_name, read_key_text
from daybook.domain.api_keys.commands import IssueKey, RevokeKey, RotateKey
from daybook.domain.api_keys.key import Binding
from tests.support.asgi_client import Answer, Api

OPERATOR = "operator:test"


class Holder(Api):
    """The same application, asked with a key."""

    def __init__(self, api: Api, key: str) -> None:
        super().__init__(api.app, api.service)
        self.key = key

    async def send(
        self,
        method: str,
        path: str,
        parts: Iterable[bytes] = (),
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> Answer:
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        with_key = [("Authorization", f"Bearer {self.key}"), *pairs]
        return await super().send(method, path, parts, with_key)


def name_of(key: str) -> str:
    read = read_key_text(key.encode())
    assert read is not None
    return read.name


async def issue(
    database: str, *scopes: str, expires_at: datetime | None = None, **binding: Any
) -> str:
    text = new_key_text(scopes[0], new_name())
    issued = IssueKey(
        name=text.name,
        holder="a test",
        scopes=scopes,
        binding=Binding(**binding),
        digest=text.digest.hex(),
        reason="a test",
        expires_at=expires_at,
    )
    async with ApiKeyAdmin(database, actor=OPERATOR) as smith:
        await smith.submit(issued)
    return text.write()


async def rotate(database: str, key: str, overlap_seconds: float) -> str:
    read = read_key_text(key.encode())
    assert read is not None
    text = new_key_text(read.kind, read.name)
    rotated = RotateKey(
        name=text.name,
        digest=text.digest.hex(),
        reason="a test",
        overlap_seconds=overlap_seconds,
    )
    async with ApiKeyAdmin(database, actor=OPERATOR) as smith:
        await smith.submit(rotated)
    return text.write()


async def revoke(database: str, key: str) -> None:
    async with ApiKeyAdmin(database, actor=OPERATOR) as smith:
        await smith.submit(RevokeKey(name=name_of(key), reason="a test"))


async def holder(api: Api, database: str, *scopes: str, **binding: Any) -> Holder:
    """Of a new key, which the application knows already."""
    key = await issue(database, *scopes, **binding)
    await refresh(api)
    return Holder(api, key)


async def refresh(api: Api) -> None:
    key_cache = api.service.key_cache
    assert key_cache is not None
    await key_cache.refresh()
