"""Checks of the database and of the backlog, with the next step for each finding."""
