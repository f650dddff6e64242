-- Operations that are given up after so many failures stay in their table, until somebody retries or
-- cancels them. `skipped` are the queues whose lanes went on without them, as a JSON array.
ALTER TABLE operations
    ADD COLUMN status       text    NOT NULL DEFAULT 'pending',
    ADD COLUMN attempts_max integer NOT NULL DEFAULT 3,
    ADD COLUMN failed_at    timestamptz,
    ADD COLUMN skipped      bytea   NOT NULL DEFAULT '[]';

-- When those failed last that were tried before: by the log, as a rebuild would find it.
UPDATE operations SET failed_at = updated_at WHERE failures > 0;

-- What was given up is in no index that is walked for what is to be carried out.
DROP INDEX operations_number_idx;
CREATE INDEX operations_pending_idx ON operations (number) WHERE status = 'pending';
CREATE INDEX operations_fresh_idx ON operations (number)
    WHERE status = 'pending' AND run_at IS NULL;
CREATE INDEX operations_failed_idx ON operations (number) WHERE status = 'failed';

-- They are copies of rows as they were, and lack the new columns; the next ones have them.
DELETE FROM checkpoint_rows WHERE kind = 'operations';
DELETE FROM checkpoints WHERE kind = 'operations';
