-- Guests whose key was destroyed, and why. Their events stay; what is sealed in them is unreadable.
CREATE TABLE erased_subjects (
    id        uuid        PRIMARY KEY,
    version   bigint      NOT NULL,
    erased_at timestamptz NOT NULL,
    reason    text        NOT NULL
);
GRANT SELECT, INSERT, UPDATE, DELETE ON erased_subjects TO daybook_service;
