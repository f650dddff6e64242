"""The append-only log: its schema, how it is written, how it is read without gaps."""
