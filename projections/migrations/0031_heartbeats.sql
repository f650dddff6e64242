-- How long the last heartbeat extends the lease of a claim, for which it was sent. With the end of
-- the lease alone, its length cannot be told after the clock has jumped. No event: the columns are
-- carried over like lease_until.
ALTER TABLE jobs
    ADD COLUMN heartbeat_claim_id uuid,
    ADD COLUMN heartbeat_seconds  float8;
-- Checkpoints are copies with the same columns.
ALTER TABLE daybook_past.jobs
    ADD COLUMN heartbeat_claim_id uuid,
    ADD COLUMN heartbeat_seconds  float8;
