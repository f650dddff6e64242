"""Export, import and replay of the log as NDJSON."""
