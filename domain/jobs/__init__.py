"""Jobs, queues and lanes: aggregates, events and commands."""
