"""The append-only event log: its schema, its writers, and its readers, which skip no event."""
