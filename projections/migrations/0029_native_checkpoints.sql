-- Live tables as they were, copied column by column: to write each row as JSON took five times as
-- long. `daybook_past` has a twin of every live table: its columns, and before them the position as
-- of which the row is a copy. Nothing refers to the live tables, which rebuilds exchange.
--
-- A migration that adds a column to a live table adds it to the twin too, with a default that is
-- right for the rows that were copied before; one that makes a live table makes its twin.
-- `tests/projections/test_checkpoints.py` notices if it is forgotten. It does not notice that copies
-- in JSON lack a new column, which is then read as NULL: where that is wrong, the migration deletes
-- them, as 0015 did.
CREATE SCHEMA daybook_past;

-- Which copies the twins hold. What `checkpoints` lists is in JSON, as before, and stays readable.
-- They are not listed together because services of the version before, which go on during an
-- upgrade, would look for the rows of all of them among those in JSON, and take the past for empty.
CREATE TABLE daybook_past.checkpoints (
    kind     text        NOT NULL,
    position bigint      NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    missing  bigint[]    NOT NULL,
    count    bigint      NOT NULL,
    PRIMARY KEY (kind, position)
);

-- All rows of a copy are read together, so `as_of` is all that is looked for. With BRIN a row would
-- be copied in nearly a third less time; but whoever reads would go through all that came since the
-- last vacuum, and through much of the table once the room of deleted rows is used again.
-- Nothing else needs to be known of them either, where autovacuum would gather it anew all the time.
DO $$
DECLARE
    one name;
    live text;
BEGIN
    FOREACH one IN ARRAY ARRAY['orders', 'bots', 'queues', 'jobs', 'schedules', 'upstream_cursors',
                               'upstream_records', 'running_rebuilds', 'keys', 'restaurants',
                               'tickets', 'erased_subjects', 'operations']
    LOOP
        EXECUTE format('CREATE TABLE daybook_past.%1$I (as_of bigint NOT NULL, LIKE daybook.%1$I)',
                       one);
        EXECUTE format('CREATE INDEX %I ON daybook_past.%I (as_of)', one || '_as_of_idx', one);
        SELECT string_agg(format('ALTER %I SET STATISTICS 0', attname), ', ')
        INTO live
        FROM pg_attribute
        WHERE attrelid = format('daybook_past.%I', one)::regclass AND attnum > 1;
        EXECUTE format('ALTER TABLE daybook_past.%I ALTER as_of SET STATISTICS 10, %s', one, live);
    END LOOP;
END $$;

GRANT USAGE ON SCHEMA daybook_past TO daybook_service, daybook_auditor;
GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA daybook_past TO daybook_service;
-- Auditors see as little of earlier keys as of those of today.
GRANT SELECT ON ALL TABLES IN SCHEMA daybook_past TO daybook_auditor;
REVOKE SELECT ON daybook_past.keys FROM daybook_auditor;
-- Nor of those that were copied as JSON.
REVOKE SELECT ON checkpoint_rows FROM daybook_auditor;
