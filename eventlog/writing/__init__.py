"""The write path: batches, decides and commits commands."""
