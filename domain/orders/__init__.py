"""Orders and bots: aggregates, events and commands."""
