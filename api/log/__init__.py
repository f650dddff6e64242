"""Endpoints for events, histories and the stream."""
