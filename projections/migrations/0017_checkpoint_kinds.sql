-- A checkpoint is one of a single live table, so that a table with many rows, which is copied
-- seldom, keeps no other from being copied often.
ALTER TABLE checkpoints DROP CONSTRAINT checkpoints_pkey;
ALTER TABLE checkpoints ADD COLUMN kind text;

INSERT INTO checkpoints (position, taken_at, missing, count, kind)
SELECT position, taken_at, missing,
       (SELECT count(*) FROM checkpoint_rows AS one
        WHERE one.position = taken.position AND one.kind = kinds.kind),
       kinds.kind
FROM checkpoints AS taken,
     unnest(ARRAY['orders', 'bots', 'queues', 'jobs', 'schedules', 'upstream_cursors',
                  'upstream_records']) AS kinds (kind);
DELETE FROM checkpoints WHERE kind IS NULL;

ALTER TABLE checkpoints ALTER COLUMN kind SET NOT NULL;
ALTER TABLE checkpoints ADD PRIMARY KEY (kind, position);
