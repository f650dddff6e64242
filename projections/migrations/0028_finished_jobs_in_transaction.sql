-- `finished_jobs` is written with the events from now on and not followed any more. What its follower
-- had still to do is done here; of these jobs the last event that finished them or started them over
-- counts, and what they were created as the last time.
CREATE TEMPORARY TABLE told_last ON COMMIT DROP AS
SELECT DISTINCT ON (originator_id) originator_id AS id, topic
FROM stored_events
WHERE notification_id > coalesce(
        (SELECT position FROM followers WHERE name = 'finished_jobs'), 0)
  AND topic IN ('job.created', 'job.requeued', 'job.completed', 'job.cancelled')
  AND originator_version > 1
ORDER BY originator_id, originator_version DESC;

DELETE FROM finished_jobs WHERE id IN (SELECT id FROM told_last);
INSERT INTO finished_jobs (id, number, status, queue, type, subject)
SELECT told_last.id, (data ->> 'number')::bigint,
       CASE topic WHEN 'job.completed' THEN 'COMPLETED' ELSE 'CANCELLED' END,
       data ->> 'queue', data ->> 'type', data ->> 'subject'
FROM told_last, LATERAL (
    SELECT convert_from(state, 'UTF8')::jsonb AS data
    FROM stored_events
    WHERE originator_id = told_last.id AND stored_events.topic = 'job.created'
    ORDER BY originator_version DESC
    LIMIT 1
) AS created
WHERE topic IN ('job.completed', 'job.cancelled');

DELETE FROM followers WHERE name = 'finished_jobs';

-- For statements that are right only as long as what a writer remembers of rows is true: otherwise the
-- whole transaction fails, and is tried anew from the rows themselves.
CREATE FUNCTION must_be_known(is_known boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF is_known IS NOT TRUE THEN
        RAISE EXCEPTION 'what was known of these rows is out of date'
            USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- Entries of one queue are all alike, and come and go: to gather them took a tenth of the time of a claim.
ALTER INDEX jobs_processing_idx SET (deduplicate_items = off);

-- As of the log itself: it grows without end, and is gathered anew with every tenth.
ALTER TABLE finished_jobs
    ALTER id SET STATISTICS 10,
    ALTER number SET STATISTICS 10,
    ALTER status SET STATISTICS 10,
    ALTER queue SET STATISTICS 10,
    ALTER type SET STATISTICS 10,
    ALTER subject SET STATISTICS 10;
