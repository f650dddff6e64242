-- Nothing here is derived from the log, and nothing of it can be made from the log again.

-- The key of each guest, under which the log holds name and number; itself only as ciphertext under
-- the service's key. To destroy a row is to erase the guest from all of history.
CREATE TABLE guest_keys (
    subject_id    uuid        PRIMARY KEY,
    restaurant_id uuid        NOT NULL,
    pseudonym     text        NOT NULL,
    wrapped       bytea       NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- One guest of a restaurant is one subject, so that one erasure is about all of their tickets.
    UNIQUE (restaurant_id, pseudonym)
);
GRANT SELECT, INSERT, DELETE ON guest_keys TO daybook_service;

-- Which key of the service the others are wrapped under: one, for all instances.
CREATE TABLE guest_service_key (
    is_only    boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    key_id     text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT, INSERT ON guest_service_key TO daybook_service;

-- When whom was let in, for limits that hold over a sliding window. Keys are pseudonyms.
CREATE TABLE admissions (
    limit_name text          NOT NULL,
    key        text          NOT NULL,
    times      timestamptz[] NOT NULL,
    -- Moves in steps as long as the window, so that most updates touch no index.
    expires_at timestamptz   NOT NULL,
    PRIMARY KEY (limit_name, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
-- What is over is found at once, however much there is.
CREATE INDEX admissions_expiry_idx ON admissions (expires_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON admissions TO daybook_service;

-- Decides about several limits as one: all of them have room and each notes it, or none does.
-- A function, because each of its statements sees what was committed before it began: the first
-- locks the rows, in the order of their keys, and the second reads what the holders before left.
CREATE FUNCTION admit(
    asked_names text[], asked_keys text[], asked_counts integer[], asked_seconds double precision[]
) RETURNS TABLE (
    name text, is_admitted boolean, has_room boolean, remaining integer, seconds double precision
) LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
BEGIN
    INSERT INTO admissions AS held (limit_name, key, times, expires_at)
    SELECT asked.name, asked.key, '{}',
           date_bin(asked.width, clock_timestamp(), 'epoch') + 2 * asked.width
    FROM (
        SELECT one.name, one.key, one.width_seconds * interval '1 second' AS width
        FROM unnest(asked_names, asked_keys, asked_seconds) AS one (name, key, width_seconds)
    ) AS asked
    ORDER BY asked.name, asked.key
    ON CONFLICT (limit_name, key)
        DO UPDATE SET expires_at = greatest(held.expires_at, EXCLUDED.expires_at);

    -- Now that they are locked: whoever was let in before was so earlier.
    moment := clock_timestamp();

    RETURN QUERY
    WITH standing AS MATERIALIZED (
        SELECT asked.name, asked.key, asked.count_max, asked.width_seconds, ARRAY(
            SELECT one
            FROM unnest(admissions.times) AS one
            WHERE one > moment - asked.width_seconds * interval '1 second'
            ORDER BY one
        ) AS times
        FROM unnest(asked_names, asked_keys, asked_counts, asked_seconds)
            AS asked (name, key, count_max, width_seconds)
        JOIN admissions ON admissions.limit_name = asked.name AND admissions.key = asked.key
    ), verdict AS MATERIALIZED (
        SELECT bool_and(cardinality(standing.times) < count_max) AS let_in FROM standing
    ), noted AS (
        UPDATE admissions
        SET times = standing.times || moment
        FROM standing, verdict
        WHERE verdict.let_in AND limit_name = standing.name AND admissions.key = standing.key
    ), unused AS (
        -- Who is refused by one limit leaves no trace in another.
        DELETE FROM admissions
        USING standing, verdict
        WHERE NOT verdict.let_in AND limit_name = standing.name AND admissions.key = standing.key
            AND standing.times = '{}'
    ), after AS (
        SELECT standing.name, verdict.let_in, count_max, width_seconds,
               cardinality(standing.times) < count_max AS has_room,
               CASE WHEN verdict.let_in THEN standing.times || moment ELSE standing.times END
                   AS times
        FROM standing, verdict
    )
    SELECT after.name, let_in, after.has_room, greatest(count_max - cardinality(times), 0),
           -- Until there is room for one, or, if there is, for one more.
           coalesce(extract(epoch FROM
               times[greatest(cardinality(times) - count_max + 1, 1)] - moment
           )::double precision + width_seconds, 0)
    FROM after;
END $$;
