-- Projections are made anew from the log in `daybook_shadow`; what they replace is kept in
-- `daybook_before`, so that it can be taken back.
CREATE SCHEMA daybook_shadow;
CREATE SCHEMA daybook_before;

-- How far the tables of a projection are in one of those, told as `followers` tells it of the
-- running ones. The service only ever locks it: so that no snapshot from before a rebuilt table
-- came into use is used to read it.
CREATE TABLE rebuilds (
    schema     text   NOT NULL,
    name       text   NOT NULL,
    position   bigint NOT NULL,
    count      bigint NOT NULL,
    digest     bytea  NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (schema, name)
);
GRANT SELECT ON rebuilds TO daybook_service;
