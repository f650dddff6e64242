"""Endpoints of messages and operations."""
