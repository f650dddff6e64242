"""Aggregates with an unreadable event."""
