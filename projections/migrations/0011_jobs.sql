-- Jobs that are not over, and what was decided about their queues.
CREATE SEQUENCE job_numbers AS bigint CACHE 1;

CREATE TABLE jobs (
    id            uuid        PRIMARY KEY,
    version       bigint      NOT NULL,
    number        bigint      NOT NULL,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    run_at        timestamptz,
    started_at    timestamptz,
    -- The one column that is not the fold of the log alone: heartbeats, which are no events, move
    -- it while a claim holds the job.
    lease_until   timestamptz,
    claim_id      uuid,
    lease_seconds float8      NOT NULL,
    life          integer     NOT NULL,
    failures      integer     NOT NULL,
    crashes       integer     NOT NULL,
    interruptions integer     NOT NULL,
    priority      smallint    NOT NULL,
    attempts      smallint    NOT NULL,
    attempts_max  smallint    NOT NULL,
    status        text        NOT NULL,
    queue         text        NOT NULL,
    type          text        NOT NULL,
    worker        text,
    subject       text,
    unique_key    text,
    unique_scope  text,
    partition     text,
    error         text,
    payload       bytea       NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
-- What can be taken at once, in the order in which it is taken, of each type by itself: a worker
-- takes only what it knows. What must wait for its time stands apart and is not walked over.
CREATE INDEX jobs_ready_idx ON jobs (queue, type, priority, number)
    WHERE status = 'PENDING' AND run_at IS NULL;
CREATE INDEX jobs_delayed_idx ON jobs (queue, type, run_at)
    WHERE status = 'PENDING' AND run_at IS NOT NULL;
CREATE INDEX jobs_processing_idx ON jobs (queue, subject) WHERE claim_id IS NOT NULL;
-- What lists walk along, by number, beside the ready ones above: of each type by itself, and of each
-- subject. A job that is taken at once and done has no part in the first two.
CREATE INDEX jobs_postponed_idx ON jobs (queue, type, number)
    WHERE status = 'PENDING' AND run_at IS NOT NULL;
CREATE INDEX jobs_dead_idx ON jobs (queue, type, number) WHERE status = 'DEAD';
CREATE INDEX jobs_subject_idx ON jobs (subject, status, number) WHERE subject IS NOT NULL;

-- Which types there are in which queue: what a worker that takes any type looks through.
CREATE TABLE job_types (
    queue text NOT NULL,
    type  text NOT NULL,
    PRIMARY KEY (queue, type)
);

CREATE TABLE queues (
    id           uuid        PRIMARY KEY,
    version      bigint      NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    paused       boolean     NOT NULL,
    concurrency          integer,
    rate_count           integer,
    rate_seconds         float8,
    subject_concurrency  integer,
    subject_rate_count   integer,
    subject_rate_seconds float8,
    name         text        NOT NULL UNIQUE,
    limited      boolean     NOT NULL GENERATED ALWAYS AS (
        coalesce(concurrency, rate_count, subject_concurrency, subject_rate_count) IS NOT NULL
    ) STORED
);

-- When the next start of a queue with a rate would be on time, were all starts evenly spread; the
-- subject is empty for the queue as a whole. No projection: losing it costs one burst.
CREATE TABLE queue_paces (
    queue   text        NOT NULL,
    subject text        NOT NULL,
    due_at  timestamptz NOT NULL,
    PRIMARY KEY (queue, subject)
);

-- How many more jobs of a queue, or of one subject in it, may be started: as far as its concurrency
-- goes, and as far as its rate goes.
CREATE FUNCTION job_room(queue text, subject text, concurrency integer) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN concurrency IS NULL THEN 9223372036854775807 ELSE concurrency - (
        SELECT count(*) FROM jobs
        WHERE jobs.queue = job_room.queue
          AND jobs.claim_id IS NOT NULL
          AND (job_room.subject IS NULL OR jobs.subject = job_room.subject)) END
$$;
CREATE FUNCTION job_pace(queue text, subject text, rate_count integer, rate_seconds float8)
RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN rate_count IS NULL THEN 9223372036854775807 ELSE floor(
        (rate_seconds - coalesce((
            SELECT greatest(extract(epoch FROM due_at - now()), 0)
            FROM queue_paces AS pace
            WHERE (pace.queue, pace.subject) = (job_pace.queue, job_pace.subject)), 0)::float8)
        * rate_count / rate_seconds + 1e-6)::bigint END
$$;

GRANT SELECT, INSERT, UPDATE, DELETE ON jobs, job_types, queues, queue_paces TO daybook_service;
GRANT USAGE, SELECT ON SEQUENCE job_numbers TO daybook_service;
