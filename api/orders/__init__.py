"""Endpoints of orders and bots."""
