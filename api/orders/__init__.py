"""Endpoints for orders and bots."""
