-- Idempotency keys whose answers are forgotten, but not that they had an effect: there is no second.
CREATE TABLE spent_keys (
    -- Of principal and key.
    digest        uuid PRIMARY KEY,
    -- What the last event of that effect is about.
    originator_id uuid NOT NULL
);
GRANT SELECT, INSERT ON spent_keys TO daybook_service;
