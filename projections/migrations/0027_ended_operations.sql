-- How many operations ended in each minute: statistics of the last minutes need not count them.
CREATE TABLE ended_operations (
    minute_at    timestamptz NOT NULL,
    kind         text        NOT NULL,
    status       text        NOT NULL,
    count        bigint      NOT NULL,
    microseconds bigint      NOT NULL,
    oldest_at    timestamptz NOT NULL,
    newest_at    timestamptz NOT NULL,
    PRIMARY KEY (minute_at, kind, status)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON ended_operations TO daybook_service;
