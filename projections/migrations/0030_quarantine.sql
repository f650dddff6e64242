-- Aggregates that hold an event which cannot be read: found by the service, set aside by operators.
CREATE TABLE quarantines (
    id                uuid        PRIMARY KEY,
    version           bigint      NOT NULL,
    aggregate_id      uuid        NOT NULL UNIQUE,
    kind              text        NOT NULL,
    topic             text        NOT NULL,
    position          bigint      NOT NULL,
    aggregate_version bigint      NOT NULL,
    error             text        NOT NULL,
    status            text        NOT NULL,
    reason            text,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL
);

-- Their rows, as they stood in live tables when they were taken out. No projection: a rebuild leaves
-- these aggregates out.
CREATE TABLE quarantined_rows (
    id         uuid        PRIMARY KEY,
    table_name text        NOT NULL,
    data       jsonb       NOT NULL,
    taken_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Up to which position the log was searched for such events: one row.
CREATE TABLE quarantine_scans (
    is_only  boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    position bigint  NOT NULL
);

GRANT SELECT, INSERT, UPDATE, DELETE ON quarantines, quarantined_rows, quarantine_scans
TO daybook_service;
GRANT SELECT ON quarantines TO daybook_auditor;

-- Their twin, for copies of earlier positions: see 0021.
CREATE TABLE daybook_past.quarantines (as_of bigint NOT NULL, LIKE daybook.quarantines);
DO $$
BEGIN
    EXECUTE format('CREATE INDEX %I ON daybook_past.quarantines (as_of)', 'quarantines_as_of_idx');
END $$;
GRANT SELECT, INSERT, DELETE ON daybook_past.quarantines TO daybook_service;
GRANT SELECT ON daybook_past.quarantines TO daybook_auditor;
