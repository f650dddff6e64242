"""Tests, on real processes and a real PostgreSQL."""
