"""Polling of feeds."""
