"""`bots`: every bot that has not been deleted, and what it works on."""

from collections.abc import Sequence

from psycopg.rows import TupleRow

from domain.bot import BOT, Bot
from domain.claim import CompletionMode
from eventlog.arrays import bigints, booleans, texts, timestamps, uuids
from eventlog.live import LiveTable, Parameters

# The columns as `load` takes them, for every statement that reads bots.
SELECT_BOTS = """
SELECT id, version, created_at, updated_at, auto_claim, completion, order_id, claim_id FROM bots
"""

HOLD_BOTS = f"{SELECT_BOTS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"

# An order's bot, whichever it is. There are few bots, so this needs no index, which every claim
# would have to keep up.
HOLD_TIED_BOTS = f"""{SELECT_BOTS}
WHERE id = ANY(%(ids)b::uuid[]) OR order_id = ANY(%(tied)b::uuid[])
ORDER BY id
FOR UPDATE
"""

HOLD_EVERY_BOT = f"{SELECT_BOTS} ORDER BY id FOR UPDATE"

INSERT_BOTS = """
INSERT INTO bots (id, version, created_at, updated_at, auto_claim, completion, order_id, claim_id)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(created)b::timestamptz[],
    %(updated)b::timestamptz[], %(auto)b::boolean[], %(completions)b::text[],
    %(orders)b::uuid[], %(claims)b::uuid[])
"""

UPDATE_BOTS = """
UPDATE bots
SET version = new.version, updated_at = new.updated_at,
    order_id = new.order_id, claim_id = new.claim_id
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(updated)b::timestamptz[],
    %(orders)b::uuid[], %(claims)b::uuid[]
) AS new (id, version, updated_at, order_id, claim_id)
WHERE bots.id = new.id
"""

DELETE_BOTS = "DELETE FROM bots WHERE id = ANY(%(ids)b::uuid[])"

_MODES = {mode.value: mode for mode in CompletionMode}


class LiveBots(LiveTable[Bot]):
    decider = BOT
    name = "bots"
    select = SELECT_BOTS
    hold = HOLD_BOTS
    hold_tied = HOLD_TIED_BOTS
    hold_every = HOLD_EVERY_BOT
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
        )

    def inserted(self, states: Sequence[Bot]) -> Parameters:
        return {
            **self.updated(states),
            "created": timestamps([bot.created_at for bot in states]),
            "auto": booleans([bot.auto_claim for bot in states]),
            "completions": texts([bot.completion for bot in states]),
        }

    def updated(self, states: Sequence[Bot]) -> Parameters:
        return {
            "ids": uuids([bot.id for bot in states]),
            "versions": bigints([bot.version for bot in states]),
            "updated": timestamps([bot.updated_at for bot in states]),
            "orders": uuids([bot.order_id for bot in states]),
            "claims": uuids([bot.claim_id for bot in states]),
        }
