"""Numbered SQL files for the log's own tables."""
