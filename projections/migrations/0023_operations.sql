-- Operations: requests that were accepted while the service was busy, and are still to be carried
-- out. `place` is the position of the event that accepted them.
CREATE SEQUENCE operation_numbers AS bigint CACHE 1;

CREATE TABLE operations (
    id         uuid        PRIMARY KEY,
    version    bigint      NOT NULL,
    number     bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    run_at     timestamptz,
    failures   integer     NOT NULL,
    kind       text        NOT NULL,
    error      text,
    items      bytea       NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX operations_number_idx ON operations (number);

-- In which lanes they hold a place: what came after them stays behind it.
CREATE TABLE operation_lanes (
    queue        text   NOT NULL,
    partition    text   NOT NULL,
    place        bigint NOT NULL,
    operation_id uuid   NOT NULL,
    PRIMARY KEY (queue, partition, place, operation_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX operation_lanes_operation_idx ON operation_lanes (operation_id);

-- A job that an operation brought in has the operation's place in its lane, and its number tells it
-- from the others of that operation.
ALTER TABLE jobs ADD COLUMN operation_id uuid;
DROP INDEX jobs_lane_idx;
CREATE INDEX jobs_lane_idx ON jobs (queue, partition, place, number) WHERE entered IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON operations, operation_lanes TO daybook_service;
GRANT USAGE, SELECT ON SEQUENCE operation_numbers TO daybook_service;
