-- What was answered to a request that came with an Idempotency-Key, stored in the transaction of
-- its effect. The position of its last event is found by that event's aggregate and version.
CREATE TABLE idempotency_keys (
    principal          text        NOT NULL,
    key                text        NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    fingerprint        bytea       NOT NULL,
    command_id         uuid        NOT NULL,
    originator_id      uuid,
    originator_version bigint,
    status             smallint    NOT NULL,
    body               bytea       NOT NULL,
    PRIMARY KEY (principal, key)
);
-- The oldest are found and forgotten at once, however many there are.
CREATE INDEX idempotency_keys_age_idx ON idempotency_keys (created_at);
GRANT SELECT, INSERT, DELETE ON idempotency_keys TO daybook_service;
