-- Live tables as they were, so that a look at the past need not begin at the beginning. A checkpoint
-- holds all events up to its position but the missing ones: those were being written when it was
-- taken, and are folded in by whoever starts from it.
CREATE TABLE checkpoints (
    position bigint      PRIMARY KEY,
    taken_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    missing  bigint[]    NOT NULL,
    count    bigint      NOT NULL
);
CREATE TABLE checkpoint_rows (
    position bigint NOT NULL,
    kind     text   NOT NULL,
    data     jsonb  NOT NULL
);
CREATE INDEX checkpoint_rows_idx ON checkpoint_rows (position, kind);

GRANT SELECT, INSERT, DELETE ON checkpoints, checkpoint_rows TO daybook_service;
