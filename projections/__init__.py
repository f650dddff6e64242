"""Tables derived from the log: live tables, written with their events, and read models."""
