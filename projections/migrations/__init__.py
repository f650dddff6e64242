"""Numbered SQL files: the tables that are derived from the log."""
