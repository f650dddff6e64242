-- Tags of jobs, joined by commas; NULL for a job without tags, which is in none of the indexes.
ALTER TABLE jobs ADD COLUMN tags text;
ALTER TABLE daybook_past.jobs ADD COLUMN tags text;
ALTER TABLE daybook_past.jobs ALTER tags SET STATISTICS 0;
ALTER TABLE finished_jobs ADD COLUMN tags text;
ALTER TABLE finished_jobs ALTER tags SET STATISTICS 10;

-- A rare tag is found by the first index of each table; a list of a common one walks the second.
-- Without a pending list, which searches would scan and one of many inserts would have to flush.
CREATE INDEX jobs_tags_idx ON jobs USING gin (string_to_array(tags, ','))
    WITH (fastupdate = off) WHERE tags IS NOT NULL;
CREATE INDEX jobs_tagged_idx ON jobs (status, number) WHERE tags IS NOT NULL;
CREATE INDEX finished_jobs_tags_idx ON finished_jobs USING gin (string_to_array(tags, ','))
    WITH (fastupdate = off) WHERE tags IS NOT NULL;
CREATE INDEX finished_jobs_tagged_idx ON finished_jobs (status, number) WHERE tags IS NOT NULL;

-- How frequent each tag is: the planner does not use the statistics of partial indexes.
CREATE STATISTICS jobs_tags_stats ON (string_to_array(tags, ',')) FROM jobs;
CREATE STATISTICS finished_jobs_tags_stats ON (string_to_array(tags, ',')) FROM finished_jobs;
ALTER STATISTICS finished_jobs_tags_stats SET STATISTICS 10;
