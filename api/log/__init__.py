"""Endpoints of events, histories and the stream."""
