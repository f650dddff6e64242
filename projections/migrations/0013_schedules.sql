-- Schedules that are not deleted.
CREATE TABLE schedules (
    id               uuid        PRIMARY KEY,
    version          bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    next_run_at      timestamptz,
    last_run_at      timestamptz,
    catch_up_seconds float8      NOT NULL,
    paused           boolean     NOT NULL,
    name             text        NOT NULL UNIQUE,
    cron             text        NOT NULL,
    time_zone        text        NOT NULL,
    missed_runs      text        NOT NULL,
    -- What the jobs are like, as JSON.
    job              bytea       NOT NULL
);
CREATE INDEX schedules_due_idx ON schedules (next_run_at) WHERE next_run_at IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON schedules TO daybook_service;
