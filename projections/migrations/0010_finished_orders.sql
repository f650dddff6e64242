-- Orders that are complete and not deleted, as `finished_orders` folds them from the log. Numbers
-- are drawn when orders are created and so rise with creation: one index finds an order, and
-- gives the newest first.
CREATE TABLE finished_orders (
    number       bigint      PRIMARY KEY,
    id           uuid        NOT NULL,
    version      bigint      NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    completed_at timestamptz NOT NULL,
    claim_id     uuid        NOT NULL,
    bot_id       uuid        NOT NULL,
    started_at   timestamptz NOT NULL,
    due_at       timestamptz NOT NULL,
    attempts     smallint    NOT NULL,
    attempts_max smallint    NOT NULL,
    kind         text        NOT NULL,
    mode         text        NOT NULL,
    user_id      text
);

-- The dead stay among the live orders until somebody looks at them; a list shows the newest first.
CREATE INDEX orders_dead_idx ON orders (number) WHERE status = 'DEAD';

GRANT SELECT, INSERT, UPDATE, DELETE ON finished_orders TO daybook_service;
