-- What was let in and came to nothing is given back, and attempts at one command count once.

-- To whose command each of `times` belongs; null for what is no command. Shorter than `times` in rows
-- from before: the rest is null.
ALTER TABLE admissions ADD COLUMN commands uuid[] NOT NULL DEFAULT '{}';

-- As admit() before, for one attempt at a command. Attempts at the same command count as one, the
-- latest of them, because the command takes effect once: so a request that is sent again after its
-- outcome was lost uses up nothing more. Each attempt is kept by itself while it may be under way, so
-- that giving one back leaves the others.
CREATE FUNCTION admit_command(
    asked_names text[], asked_keys text[], asked_counts integer[], asked_seconds double precision[],
    asked_command uuid
) RETURNS TABLE (
    name text, is_admitted boolean, has_room boolean, remaining integer, seconds double precision,
    noted_at timestamptz
) LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
    -- A request is answered long before.
    under_way CONSTANT interval := '1 minute';
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
    WITH asked AS MATERIALIZED (
        SELECT one.name, one.key, one.count_max, one.width_seconds, admissions.times,
               admissions.commands
        FROM unnest(asked_names, asked_keys, asked_counts, asked_seconds)
            AS one (name, key, count_max, width_seconds)
        JOIN admissions ON admissions.limit_name = one.name AND admissions.key = one.key
    ), standing AS MATERIALIZED (
        SELECT asked.name, asked.key, asked.count_max, asked.width_seconds, ARRAY(
            -- Of other commands, the latest attempt at each.
            SELECT max(one.at)
            FROM unnest(asked.times, asked.commands) WITH ORDINALITY AS one (at, command, place)
            WHERE one.at > moment - asked.width_seconds * interval '1 second'
                AND (one.command IS NULL OR one.command IS DISTINCT FROM asked_command)
            GROUP BY one.command, CASE WHEN one.command IS NULL THEN one.place END
            ORDER BY 1
        ) AS times
        FROM asked
    ), verdict AS MATERIALIZED (
        SELECT bool_and(cardinality(standing.times) < count_max) AS let_in FROM standing
    ), kept AS MATERIALIZED (
        SELECT asked.name, asked.key,
               coalesce(array_agg(one.at ORDER BY one.place) FILTER (WHERE one.is_kept), '{}')
                   AS times,
               coalesce(array_agg(one.command ORDER BY one.place) FILTER (WHERE one.is_kept), '{}')
                   AS commands
        FROM asked
        LEFT JOIN LATERAL (
            SELECT found.at, found.command, found.place,
                   found.at > moment - asked.width_seconds * interval '1 second'
                   AND (found.command IS NULL OR found.command IS DISTINCT FROM asked_command
                        OR found.at > moment - under_way) AS is_kept
            FROM unnest(asked.times, asked.commands) WITH ORDINALITY AS found (at, command, place)
        ) AS one ON true
        GROUP BY asked.name, asked.key
    ), noted AS (
        UPDATE admissions
        SET times = kept.times || moment, commands = kept.commands || asked_command
        FROM kept, verdict
        WHERE verdict.let_in AND limit_name = kept.name AND admissions.key = kept.key
    ), unused AS (
        -- Who is refused by one limit leaves no trace in another.
        DELETE FROM admissions
        USING kept, verdict
        WHERE NOT verdict.let_in AND limit_name = kept.name AND admissions.key = kept.key
            AND kept.times = '{}'
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
           )::double precision + width_seconds, 0),
           moment
    FROM after;
END $$;

-- For instances of an earlier version, while they are replaced one by one.
CREATE OR REPLACE FUNCTION admit(
    asked_names text[], asked_keys text[], asked_counts integer[], asked_seconds double precision[]
) RETURNS TABLE (
    name text, is_admitted boolean, has_room boolean, remaining integer, seconds double precision
) LANGUAGE sql AS $$
    SELECT told.name, told.is_admitted, told.has_room, told.remaining, told.seconds
    FROM admit_command(asked_names, asked_keys, asked_counts, asked_seconds, NULL) AS told
$$;

-- Takes back what one attempt has used up; of a command that nobody else can have sent, all attempts,
-- when it is not known which there were. Rows are locked in the order in which admit_command() does.
CREATE FUNCTION give_back(
    asked_names text[], asked_keys text[], asked_command uuid, asked_moment timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM
    FROM admissions
    JOIN unnest(asked_names, asked_keys) AS one (name, key)
        ON admissions.limit_name = one.name AND admissions.key = one.key
    ORDER BY limit_name, admissions.key
    FOR UPDATE OF admissions;

    UPDATE admissions
    SET (times, commands) = (
        SELECT coalesce(array_agg(one.at ORDER BY one.place), '{}'),
               coalesce(array_agg(one.command ORDER BY one.place), '{}')
        FROM unnest(times, commands) WITH ORDINALITY AS one (at, command, place)
        WHERE one.command IS DISTINCT FROM asked_command
            OR (asked_moment IS NOT NULL AND one.at <> asked_moment)
    )
    FROM unnest(asked_names, asked_keys) AS one (name, key)
    WHERE limit_name = one.name AND admissions.key = one.key
        AND asked_command = ANY (commands);
END $$;
