"""The clients of the HTTP API."""
