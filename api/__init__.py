"""The outside: HTTP, settings and the clock."""
