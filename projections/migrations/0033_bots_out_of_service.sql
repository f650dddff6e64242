-- Bots whose claims fail too often in a row are taken out of service. Bots of before have no limit,
-- and without a limit no failures are counted: so the defaults are what the log says of them.
ALTER TABLE bots
    ADD COLUMN failures_max integer NOT NULL DEFAULT 0,
    ADD COLUMN failures     integer NOT NULL DEFAULT 0,
    ADD COLUMN errors       text    NOT NULL DEFAULT '[]',
    ADD COLUMN dead_at      timestamptz;
ALTER TABLE daybook_past.bots
    ADD COLUMN failures_max integer NOT NULL DEFAULT 0,
    ADD COLUMN failures     integer NOT NULL DEFAULT 0,
    ADD COLUMN errors       text    NOT NULL DEFAULT '[]',
    ADD COLUMN dead_at      timestamptz;
ALTER TABLE daybook_past.bots
    ALTER failures_max SET STATISTICS 0,
    ALTER failures SET STATISTICS 0,
    ALTER errors SET STATISTICS 0,
    ALTER dead_at SET STATISTICS 0;

-- Copies in JSON lack these columns and would be read as NULL: the log tells the same, more slowly.
DELETE FROM checkpoint_rows WHERE kind = 'bots';
DELETE FROM checkpoints WHERE kind = 'bots';
