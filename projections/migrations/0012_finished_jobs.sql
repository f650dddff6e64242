-- Jobs that are over, as `finished_jobs` derives them from the log: what a list needs to find them.
-- All else about them is folded from the log for those that a page shows.
CREATE TABLE finished_jobs (
    id      uuid   PRIMARY KEY,
    number  bigint NOT NULL,
    status  text   NOT NULL,
    queue   text   NOT NULL,
    type    text   NOT NULL,
    subject text
);
CREATE INDEX finished_jobs_source_idx ON finished_jobs (queue, type, status, number);
CREATE INDEX finished_jobs_subject_idx ON finished_jobs (subject, status, number)
    WHERE subject IS NOT NULL;

GRANT SELECT, INSERT, DELETE ON finished_jobs TO daybook_service;
