-- The tables of the example, in a schema of their own beside that of Daybook: one database, so
-- that a booking and its jobs can be committed together.

-- Several programs may start at once; one of them makes the tables.
SELECT pg_advisory_xact_lock(hashtext('examples.bookings'));

CREATE SCHEMA IF NOT EXISTS bookings;

CREATE TABLE IF NOT EXISTS bookings.bookings (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    status            text NOT NULL DEFAULT 'PENDING'
                      CHECK (status IN ('PENDING', 'CONFIRMED', 'CANCELLED')),
    machine           text NOT NULL,
    starts_on         date NOT NULL,
    ends_on           date NOT NULL CHECK (ends_on >= starts_on),
    customer_name     text NOT NULL,
    customer_email    text NOT NULL,
    customer_nif      text,
    total_cents       bigint NOT NULL CHECK (total_cents > 0),
    payment_intent_id text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    confirmed_at      timestamptz,
    invoice_number    text,
    invoice_pdf_url   text,
    -- Until when the link in the mail works, and the effect key of the job that sends it.
    invoice_link_until timestamptz,
    invoice_link_key   text
);

-- One mail of a kind per booking, with the id under which the provider knows it.
CREATE TABLE IF NOT EXISTS bookings.sent_emails (
    booking_id bigint NOT NULL REFERENCES bookings.bookings,
    kind       text NOT NULL,
    message_id text NOT NULL,
    sent_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (booking_id, kind)
);

-- Machines that move from one depot to another. The till knows a transfer as a consignment.
CREATE TABLE IF NOT EXISTS bookings.transfers (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    from_depot      text NOT NULL,
    to_depot        text NOT NULL,
    counts          jsonb NOT NULL,
    status          text NOT NULL DEFAULT 'NEW',
    received_counts jsonb NOT NULL DEFAULT '{}',
    consignment_id  text
);
