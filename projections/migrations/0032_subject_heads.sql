-- The ready jobs of each subject by themselves, in the order in which they are taken: a queue with a
-- limit per subject looks for the first job of every subject, and steps over a subject that has no
-- room in one step, however many jobs it has.
--
-- A job without a subject is in this index alone, so it costs one entry, as before; `jobs_ready_idx`
-- keeps the order across subjects and holds only jobs that have one. A service of the version before
-- finds both kinds by the first columns and sorts them: it is right, and slow with a long queue.
CREATE INDEX jobs_ready_subjects_idx ON jobs (queue, type, subject, priority, number)
    WHERE status = 'PENDING' AND run_at IS NULL AND NOT behind;
DROP INDEX jobs_ready_idx;
CREATE INDEX jobs_ready_idx ON jobs (queue, type, priority, number)
    WHERE status = 'PENDING' AND run_at IS NULL AND NOT behind AND subject IS NOT NULL;
CREATE INDEX jobs_delayed_subjects_idx ON jobs (queue, type, subject, run_at)
    WHERE status = 'PENDING' AND run_at IS NOT NULL AND NOT behind;

-- Jobs that earlier statements of this transaction picked and that are not claimed yet: claims of one
-- batch with different selectors share the room of a queue.
CREATE FUNCTION picked_jobs() RETURNS uuid[] LANGUAGE sql STABLE AS $$
    SELECT string_to_array(nullif(current_setting('daybook.picked_jobs', true), ''), ',')::uuid[]
$$;

CREATE OR REPLACE FUNCTION job_room(queue text, subject text, concurrency integer) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN concurrency IS NULL THEN 9223372036854775807 ELSE concurrency - (
        SELECT count(*) FROM jobs
        WHERE jobs.queue = job_room.queue
          AND jobs.claim_id IS NOT NULL
          AND (job_room.subject IS NULL OR jobs.subject = job_room.subject)
    ) - (
        SELECT count(*) FROM jobs
        WHERE jobs.id = ANY(picked_jobs())
          AND jobs.queue = job_room.queue
          AND jobs.claim_id IS NULL
          AND (job_room.subject IS NULL OR jobs.subject = job_room.subject)) END
$$;
