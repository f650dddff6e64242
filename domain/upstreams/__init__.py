"""Records imported from feeds of other services."""
