"""Numbered SQL files: the log's own tables."""
