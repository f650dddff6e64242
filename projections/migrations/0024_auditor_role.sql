-- The role for auditors with SQL: it reads the log and what is derived from it, and writes nothing.
-- What could lead to a guest, a key or an answer of another's stays closed, and so does every new
-- table until a migration opens it.
DO $$
BEGIN
    CREATE ROLE daybook_auditor NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
GRANT USAGE ON SCHEMA daybook TO daybook_auditor;
DO $$
DECLARE
    closed CONSTANT name[] := ARRAY['guest_keys', 'guest_service_key', 'admissions', 'keys',
                                    'idempotency_keys', 'spent_keys'];
    one name;
BEGIN
    FOR one IN SELECT relname FROM pg_class
               WHERE relnamespace = 'daybook'::regnamespace
                 AND relkind IN ('r', 'p', 'v')
                 AND relname <> ALL(closed)
    LOOP
        EXECUTE format('GRANT SELECT ON daybook.%I TO daybook_auditor', one);
    END LOOP;
END $$;
GRANT SELECT ON ALL SEQUENCES IN SCHEMA daybook TO daybook_auditor;
