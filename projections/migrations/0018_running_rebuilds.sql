-- Rebuilds that have not ended, as their events tell of them.
CREATE TABLE running_rebuilds (
    id          uuid        PRIMARY KEY,
    version     bigint      NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    action      text        NOT NULL,
    -- Their names, with a space between them.
    projections text        NOT NULL
);
GRANT SELECT, INSERT, UPDATE, DELETE ON running_rebuilds TO daybook_service;
