-- Orders and bots that are not finished. Rows come and go with every order, so the pages keep
-- room for new versions and dead ones are swept eagerly.
CREATE SEQUENCE order_numbers AS bigint CACHE 1;

CREATE TABLE orders (
    id           uuid        PRIMARY KEY,
    version      bigint      NOT NULL,
    number       bigint      NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    claim_id     uuid,
    bot_id       uuid,
    started_at   timestamptz,
    due_at       timestamptz,
    rank         smallint    NOT NULL,
    attempts     smallint    NOT NULL,
    attempts_max smallint    NOT NULL,
    kind         text        NOT NULL,
    status       text        NOT NULL,
    mode         text,
    user_id      text,
    error        text
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX orders_ready_idx ON orders (rank, number) WHERE status = 'PENDING';
-- No bot holds two orders, whatever the code says; and what is being cooked is found at once.
CREATE UNIQUE INDEX orders_processing_idx ON orders (bot_id) WHERE bot_id IS NOT NULL;

CREATE TABLE bots (
    id         uuid        PRIMARY KEY,
    version    bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    order_id   uuid,
    claim_id   uuid,
    auto_claim boolean     NOT NULL,
    completion text        NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

GRANT SELECT, INSERT, UPDATE, DELETE ON orders, bots TO daybook_service;
GRANT USAGE, SELECT ON SEQUENCE order_numbers TO daybook_service;
