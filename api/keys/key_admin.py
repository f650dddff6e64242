"""Creates, changes and revokes API keys directly on a database, with or without a service."""

from contextlib import AsyncExitStack
from getpass import getuser
from typing import Any, Self

from uuid_utils.compat import uuid7

from daybook.domain.api_keys.key import Key
from daybook.domain.command import Command
from daybook.domain.deciders import DECIDERS
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.eventlog.writing.committer import Committer
from daybook.projections.api_keys.api_keys import all_keys
from daybook.projections.registry import LIVE_TABLES


def operator() -> str:
    """The actor recorded for commands run on this machine."""
    try:
        return f"operator:{getuser()}"
    except (KeyError, OSError):
        return "operator:unknown"


class ApiKeyAdmin:
    def __init__(self, conninfo: str, *, actor: str) -> None:
        self._conninfo = conninfo
        self._actor = actor
        self._committer = Committer(
            conninfo, tables=LIVE_TABLES, mapper=EventMapper(DECIDERS), writers=1
        )
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self._committer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def keys(self) -> list[Key]:
        async with await connect(reader_conninfo(self._conninfo)) as connection:
            return await all_keys(connection)

    async def submit(self, command: Command[Any]) -> Key:
        """Returns the key after the command; raises its refusal."""
        origin = Origin(command_id=uuid7(), actor=self._actor)
        key: Key = (await self._committer.submit(command, origin)).result
        return key
