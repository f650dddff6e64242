"""Tables derived from the log: live ones, written with their events, and read models."""
