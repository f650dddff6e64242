-- An import that is under way or was interrupted: how much of its file is in the log, told by the
-- number and the digest of its bytes, and the largest numbers that were given out. While there is
-- a row here the service may not append.
CREATE TABLE imports (
    is_only     boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    began_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    position    bigint      NOT NULL DEFAULT 0,
    lines_count bigint      NOT NULL DEFAULT 0,
    bytes_count bigint      NOT NULL DEFAULT 0,
    digest      bytea       NOT NULL,
    numbers     jsonb       NOT NULL DEFAULT '{}'
);
GRANT SELECT ON imports TO daybook_service;
