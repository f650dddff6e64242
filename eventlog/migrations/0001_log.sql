-- The log. The column names are the event library's, so that its recorder reads it unchanged;
-- those of fixed width come first, so that no row is padded.
CREATE TABLE stored_events (
    originator_id      uuid        NOT NULL,
    originator_version bigint      NOT NULL,
    notification_id    bigint      NOT NULL,
    recorded_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    causation_id       bigint,
    command_id         uuid        NOT NULL,
    correlation_id     uuid        NOT NULL,
    actor              text        NOT NULL,
    topic              text        NOT NULL,
    state              bytea       NOT NULL,
    -- Optimistic concurrency: of two writers of one version, one fails.
    PRIMARY KEY (originator_id, originator_version)
);

-- CACHE 1: with a larger cache, sessions would draw positions long before they use them.
CREATE SEQUENCE stored_events_notification_id_seq AS bigint CACHE 1
    OWNED BY stored_events.notification_id;
ALTER TABLE stored_events ALTER notification_id
    SET DEFAULT nextval('stored_events_notification_id_seq');
CREATE UNIQUE INDEX stored_events_notification_id_idx ON stored_events (notification_id);

-- Nobody rewrites history, whatever rights they have (short of dropping the trigger).
CREATE FUNCTION refuse_to_rewrite_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'stored_events is append-only: % is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON stored_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_rewrite_history();

-- For auditors with SQL.
CREATE VIEW log AS
SELECT notification_id AS position,
       originator_id AS aggregate_id,
       originator_version AS version,
       topic,
       convert_from(state, 'UTF8')::jsonb AS data,
       recorded_at,
       actor,
       command_id,
       correlation_id,
       causation_id
FROM stored_events;

-- Where each follower stands, and the proof that it neither skipped nor repeated anything:
-- how many positions it processed, and a hash chained over them in order.
CREATE TABLE followers (
    name       text PRIMARY KEY,
    position   bigint NOT NULL,
    count      bigint NOT NULL,
    digest     bytea  NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The role the service works under: it may append to the log, and nothing else there. Roles
-- belong to the whole server, so another database may have made it already, even just now.
DO $$
BEGIN
    CREATE ROLE daybook_service NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
-- From PostgreSQL 16 on, who creates a role may administer it but not yet act under it.
DO $$
DECLARE
    needed text := CASE WHEN current_setting('server_version_num')::int >= 160000
                        THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    IF NOT pg_has_role(current_user, 'daybook_service', needed) THEN
        EXECUTE format('GRANT daybook_service TO %I', current_user);
    END IF;
END $$;
GRANT USAGE ON SCHEMA daybook TO daybook_service;
GRANT SELECT, INSERT ON stored_events TO daybook_service;
GRANT SELECT ON log, migrations TO daybook_service;
GRANT USAGE, SELECT ON SEQUENCE stored_events_notification_id_seq TO daybook_service;
GRANT SELECT, INSERT, UPDATE, DELETE ON followers TO daybook_service;
