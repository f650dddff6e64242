"""Completion callbacks by QStash."""
