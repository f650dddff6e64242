"""State and lists as of a position or an instant."""
