"""PostgreSQL servers that fail over, jump in time, lose connections or hold unreadable events."""
