"""`bots`: the live table of bots that are not deleted, with the order each works on."""

from collections.abc import Sequence
from typing import Any

from msgspec import json
from psycopg.rows import TupleRow

from daybook.domain.orders.bot import BOT, Bot
from daybook.domain.orders.claim import CompletionMode
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import Change, LiveTable, Parameters

# In the order of `load`.
SELECT_BOTS = """
SELECT id, version, created_at, updated_at, auto_claim, completion, order_id, claim_id,
       failures_max, failures, errors, dead_at
FROM bots
"""
LOCK_BOTS = f"{SELECT_BOTS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
# Finds an order's bot without an index: bots are few, and every claim would have to maintain it.
LOCK_RELATED_BOTS = f"""{SELECT_BOTS}
WHERE id = ANY(%(ids)b::uuid[]) OR order_id = ANY(%(tied)b::uuid[])
ORDER BY id
FOR UPDATE
"""
LOCK_ALL_BOTS = f"{SELECT_BOTS} ORDER BY id FOR UPDATE"
_INSERTED = arrays.unnested(
    "ids uuid, versions bigint, created timestamptz, updated timestamptz, auto boolean, "
    "completions text, orders uuid, claims uuid, limits integer, failures integer, errors text, "
    "dead timestamptz"
)
INSERT_BOTS = f"""
INSERT INTO bots (id, version, created_at, updated_at, auto_claim, completion, order_id, claim_id,
                  failures_max, failures, errors, dead_at)
SELECT {_INSERTED}
"""
_UPDATED = arrays.unnested(
    "ids uuid, versions bigint, updated timestamptz, orders uuid, claims uuid, limits integer, "
    "failures integer, errors text, dead timestamptz"
)
UPDATE_BOTS = f"""
UPDATE bots
SET version = new.version, updated_at = new.updated_at,
    order_id = new.order_id, claim_id = new.claim_id,
    failures_max = new.failures_max, failures = new.failures,
    errors = new.errors, dead_at = new.dead_at
FROM (SELECT {_UPDATED})
    AS new (id, version, updated_at, order_id, claim_id, failures_max, failures, errors, dead_at)
WHERE {equals_by_key_lookup("bots.id", "new.id")}
"""
_BUSIED = arrays.unnested(
    "ids uuid, versions bigint, updated timestamptz, orders uuid, claims uuid"
)
# Fast path: mostly a bot only begins or ends an order.
UPDATE_BUSY_BOTS = f"""
UPDATE bots
SET version = new.version, updated_at = new.updated_at,
    order_id = new.order_id, claim_id = new.claim_id
FROM (SELECT {_BUSIED})
    AS new (id, version, updated_at, order_id, claim_id)
WHERE {equals_by_key_lookup("bots.id", "new.id")}
"""
DELETE_BOTS = "DELETE FROM bots WHERE id = ANY(%(ids)b::uuid[])"
NO_ERRORS = "[]"
_MODES = {mode.value: mode for mode in CompletionMode}


class LiveBots(LiveTable[Bot]):
    decider = BOT
    name = "bots"
    select = SELECT_BOTS
    lock = LOCK_BOTS
    lock_related = LOCK_RELATED_BOTS
    lock_all = LOCK_ALL_BOTS
    insert = INSERT_BOTS
    update = UPDATE_BOTS
    delete = DELETE_BOTS

    def load(self, row: TupleRow) -> Bot:
        return Bot(
            id=row[0],
            version=row[1],
            created_at=row[2],
            updated_at=row[3],
            auto_claim=row[4],
            completion=_MODES[row[5]],
            order_id=row[6],
            claim_id=row[7],
            failures_max=row[8],
            failures=row[9],
            errors=_read_errors(row[10]),
            dead_at=row[11],
        )

    def update_statement(self, changes: Sequence[Change]) -> tuple[str, Parameters]:
        states = [change.state for change in changes]
        if all(_service(change.before) == _service(change.state) for change in changes):
            return UPDATE_BUSY_BOTS, self._busied(states)
        return self.update, self.update_parameters(states)

    def insert_parameters(self, states: Sequence[Bot]) -> Parameters:
        return {
            **self.update_parameters(states),
            "created": arrays.timestamps([bot.created_at for bot in states]),
            "auto": arrays.booleans([bot.auto_claim for bot in states]),
            "completions": arrays.texts([bot.completion for bot in states]),
        }

    def update_parameters(self, states: Sequence[Bot]) -> Parameters:
        return {
            **self._busied(states),
            "limits": arrays.integers([bot.failures_max for bot in states]),
            "failures": arrays.integers([bot.failures for bot in states]),
            "errors": arrays.texts([_write_errors(bot.errors) for bot in states]),
            "dead": arrays.timestamps([bot.dead_at for bot in states]),
        }

    def _busied(self, states: Sequence[Bot]) -> Parameters:
        return {
            "ids": arrays.uuids([bot.id for bot in states]),
            "versions": arrays.bigints([bot.version for bot in states]),
            "updated": arrays.timestamps([bot.updated_at for bot in states]),
            "orders": arrays.uuids([bot.order_id for bot in states]),
            "claims": arrays.uuids([bot.claim_id for bot in states]),
        }


def _service(bot: Bot | None) -> tuple[Any, ...] | None:
    """Columns that UPDATE_BUSY_BOTS does not write."""
    return None if bot is None else (bot.failures_max, bot.failures, bot.errors, bot.dead_at)


def _read_errors(text: str) -> tuple[str, ...]:
    return () if text == NO_ERRORS else json.decode(text, type=tuple[str, ...])


def _write_errors(errors: tuple[str, ...]) -> str:
    return json.encode(errors).decode() if errors else NO_ERRORS


READ_BOTS = f"{SELECT_BOTS} ORDER BY created_at DESC, id DESC"
_BOTS = LiveBots()


async def all_bots(connection: Connection) -> list[Bot]:
    """Returns the bots that are not deleted, newest first."""
    rows = await connection.execute(READ_BOTS, binary=True)
    return [_BOTS.load(row) for row in await rows.fetchall()]
