-- The last derived table that auditors could not read: 0024 opened only the tables before it.
GRANT SELECT ON ended_operations TO daybook_auditor;
