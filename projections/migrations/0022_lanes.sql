-- Lanes: what is in one partition of a queue is done one after another. `place` is the position of
-- the event with which a job entered its lane, and `behind` says that another is before it there.
ALTER TABLE queues ADD COLUMN lanes text NOT NULL DEFAULT 'block';

ALTER TABLE jobs
    ADD COLUMN skips   boolean NOT NULL DEFAULT false,
    ADD COLUMN entered bigint,
    ADD COLUMN place   bigint,
    ADD COLUMN behind  boolean NOT NULL DEFAULT false;

-- Jobs that had a partition before it meant anything line up as they came.
WITH entries AS (
    SELECT originator_id AS id, originator_version AS version, notification_id AS place, topic,
           lag(topic) OVER (PARTITION BY originator_id ORDER BY originator_version) AS previous
    FROM stored_events
    WHERE originator_id IN (SELECT id FROM jobs WHERE partition IS NOT NULL)
), entered AS (
    SELECT DISTINCT ON (id) id, version, place
    FROM entries
    WHERE topic = 'job.created' OR topic = 'job.requeued' AND previous = 'job.cancelled'
    ORDER BY id, version DESC
)
UPDATE jobs SET entered = entered.version, place = entered.place
FROM entered WHERE jobs.id = entered.id;
UPDATE jobs SET behind = true
WHERE entered IS NOT NULL AND EXISTS (
    SELECT FROM jobs AS member
    WHERE (member.queue, member.partition) = (jobs.queue, jobs.partition)
      AND member.place < jobs.place);

-- What is behind another cannot be taken, so no walk for ready jobs comes across it.
DROP INDEX jobs_ready_idx, jobs_delayed_idx;
CREATE INDEX jobs_ready_idx ON jobs (queue, type, priority, number)
    WHERE status = 'PENDING' AND run_at IS NULL AND NOT behind;
CREATE INDEX jobs_delayed_idx ON jobs (queue, type, run_at)
    WHERE status = 'PENDING' AND run_at IS NOT NULL AND NOT behind;
-- Lists and counts show it all the same.
CREATE INDEX jobs_behind_idx ON jobs (queue, type, number) WHERE status = 'PENDING' AND behind;
CREATE INDEX jobs_lane_idx ON jobs (queue, partition, place) WHERE entered IS NOT NULL;

-- Only ever locked: whoever enters or leaves a lane holds its row.
CREATE TABLE lanes (
    id        uuid PRIMARY KEY,
    queue     text NOT NULL,
    partition text NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON lanes TO daybook_service;

-- They are copies of rows as they were, and lack the new columns; the next ones have them.
DELETE FROM checkpoint_rows;
DELETE FROM checkpoints;
