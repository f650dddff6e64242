-- Restaurants with their lines. A row is written with every guest who joins or is called, so its page
-- keeps room for new versions.
CREATE TABLE restaurants (
    id                uuid        PRIMARY KEY,
    version           bigint      NOT NULL,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    issued_count      bigint      NOT NULL,
    sequence          bigint      NOT NULL,
    day_sequence      bigint      NOT NULL,
    waiting_count     bigint      NOT NULL,
    minutes_per_party float8      NOT NULL,
    no_show_seconds   float8,
    service_day       date,
    slug              text        NOT NULL UNIQUE,
    name              text        NOT NULL,
    token_prefix      text        NOT NULL,
    reset             text        NOT NULL,
    time_zone         text        NOT NULL,
    -- The last calls, as JSON.
    last_calls        bytea       NOT NULL
) WITH (
    fillfactor = 30,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Tickets of guests who wait or were called. Of the guest there is only what is sealed.
CREATE TABLE tickets (
    id               uuid        PRIMARY KEY,
    version          bigint      NOT NULL,
    restaurant_id    uuid        NOT NULL,
    place            bigint      NOT NULL,
    sequence         bigint      NOT NULL,
    position_at_join bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    called_at        timestamptz,
    recalled_at      timestamptz,
    due_at           timestamptz,
    returned_at      timestamptz,
    transferred_at   timestamptz,
    subject_id       uuid        NOT NULL,
    came_from        uuid,
    minutes_low      integer     NOT NULL,
    minutes_high     integer     NOT NULL,
    calls_count      integer     NOT NULL,
    service_day      date,
    party_size       smallint    NOT NULL,
    status           text        NOT NULL,
    token_number     text        NOT NULL,
    seating_type     text,
    desk             text,
    pseudonym        text        NOT NULL,
    sealed           text        NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
-- The line in its order; and no place is given twice, whatever the code says.
CREATE UNIQUE INDEX tickets_line_idx ON tickets (restaurant_id, status, place);
CREATE UNIQUE INDEX tickets_place_idx ON tickets (restaurant_id, place);
CREATE INDEX tickets_due_idx ON tickets (due_at) WHERE due_at IS NOT NULL;

-- How many wait in each stretch of a line, so that nobody has to be counted: stretches of 64 places,
-- of 64 of those, and so on.
CREATE TABLE ticket_counts (
    restaurant_id uuid     NOT NULL,
    level         smallint NOT NULL,
    stretch       bigint   NOT NULL,
    waiting       bigint   NOT NULL,
    PRIMARY KEY (restaurant_id, level, stretch)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Tickets that are over, as `finished_tickets` folds them from the log, for lists that show the newest
-- first: places rise with joining.
CREATE TABLE finished_tickets (
    id            uuid   PRIMARY KEY,
    restaurant_id uuid   NOT NULL,
    place         bigint NOT NULL,
    status        text   NOT NULL,
    -- All of it, as JSON: nothing else is ever looked for.
    ticket        bytea  NOT NULL
);
CREATE INDEX finished_tickets_newest_idx ON finished_tickets (restaurant_id, status, place);

GRANT SELECT, INSERT, UPDATE, DELETE
    ON restaurants, tickets, ticket_counts, finished_tickets TO daybook_service;
