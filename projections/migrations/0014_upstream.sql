-- How far upstreams have been read, and their records as we know them.
CREATE TABLE upstream_cursors (
    id            uuid        PRIMARY KEY,
    version       bigint      NOT NULL,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    polled_at     timestamptz,
    reconciled_at timestamptz,
    ordinal       bigint      NOT NULL,
    stream        text        NOT NULL UNIQUE,
    cursor        text,
    error         text,
    -- Where polls may begin, and the poll that is under way, as JSON.
    marks         bytea       NOT NULL,
    poll          bytea       NOT NULL
);

CREATE TABLE upstream_records (
    id         uuid        PRIMARY KEY,
    version    bigint      NOT NULL,
    seen_at    timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted    boolean     NOT NULL,
    vanished   boolean     NOT NULL,
    stream     text        NOT NULL,
    record_id  text        NOT NULL,
    -- The record's own version, as the feed tells it.
    revision   text        NOT NULL,
    data       bytea       NOT NULL
);
CREATE INDEX upstream_records_list_idx ON upstream_records (stream, id);

-- When a full poll last found a record. No projection, since finding what is known is no event; it
-- has rows of its own because they are written over and over.
CREATE TABLE upstream_checks (
    id         uuid        PRIMARY KEY,
    checked_at timestamptz NOT NULL
) WITH (fillfactor = 70);

GRANT SELECT, INSERT, UPDATE, DELETE ON upstream_cursors, upstream_records, upstream_checks
    TO daybook_service;
