-- An epoch of the log is one life of the server that keeps it: its system identifier and timeline.
-- After a failover or a restore positions may mean other events than before. Each epoch says up to
-- which position its log is certainly the same as in all epochs before it.
CREATE TABLE log_epochs (
    number   bigint PRIMARY KEY,
    epoch    text   NOT NULL UNIQUE,
    position bigint NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT, INSERT ON log_epochs TO daybook_service;

-- In which epoch a follower's cursor was last moved.
ALTER TABLE followers ADD COLUMN epoch text;
