"""`bots`: the live table of bots that are not deleted, with the order each works on."""

from msgspec import json

from daybook.domain.orders.bot import BOT, Bot
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import FastUpdate, LiveTable
from daybook.eventlog.writing.row_mapping import Codec, Column

NO_ERRORS = "[]"


def _read_errors(text: str) -> tuple[str, ...]:
    return () if text == NO_ERRORS else json.decode(text, type=tuple[str, ...])


def _write_errors(errors: tuple[str, ...]) -> str:
    return json.encode(errors).decode() if errors else NO_ERRORS


def _only_changes_order(before: Bot, after: Bot) -> bool:
    return (before.failures_max, before.failures, before.errors, before.dead_at) == (
        (after.failures_max, after.failures, after.errors, after.dead_at)
    )


BOTS = LiveTable(
    "bots",
    BOT,
    [
        Column("id", "uuid"),
        Column("created_at", "timestamptz"),
        Column("auto_claim", "boolean"),
        Column("completion", "text"),
        Column("version", "bigint", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("order_id", "uuid", changes=True),
        Column("claim_id", "uuid", changes=True),
        Column("failures_max", "integer", changes=True),
        Column("failures", "integer", changes=True),
        Column("errors", "text", changes=True, codec=Codec(_write_errors, _read_errors)),
        Column("dead_at", "timestamptz", changes=True),
    ],
    # Without an index: bots are few, and every claim would have to maintain it.
    related_by="order_id",
    # Mostly a bot only begins or ends an order (`bench write`).
    fast_update=FastUpdate(
        _only_changes_order, columns=("version", "updated_at", "order_id", "claim_id")
    ),
)

READ_BOTS = f"{BOTS.select} ORDER BY created_at DESC, id DESC"


async def all_bots(connection: Connection) -> list[Bot]:
    """Returns the bots that are not deleted, newest first."""
    rows = await connection.execute(READ_BOTS, binary=True)
    return [BOTS.load(row) for row in await rows.fetchall()]
