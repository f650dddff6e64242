-- Keys, revoked ones too: who looks at the list wants to see that they are. Of a secret there is
-- only its digest, as in the log.
CREATE TABLE keys (
    id             uuid        PRIMARY KEY,
    version        bigint      NOT NULL,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    expires_at     timestamptz,
    earlier_until  timestamptz,
    revoked_at     timestamptz,
    name           text        NOT NULL UNIQUE,
    holder         text        NOT NULL,
    -- Separated by commas, which are in none of them.
    scopes         text        NOT NULL,
    -- What it is bound to, as JSON.
    binding        bytea       NOT NULL,
    digest         text        NOT NULL,
    earlier_digest text
);
GRANT SELECT, INSERT, UPDATE, DELETE ON keys TO daybook_service;

-- Whose an order is: the restaurant's or the key's that it was created for. Those of before are
-- nobody's. Lists of one owner walk along these, as those of all walk along theirs.
ALTER TABLE orders ADD owner text;
ALTER TABLE finished_orders ADD owner text;
CREATE INDEX orders_owner_idx ON orders (owner, status, rank, number) WHERE owner IS NOT NULL;
CREATE INDEX finished_orders_owner_idx ON finished_orders (owner, number) WHERE owner IS NOT NULL;
