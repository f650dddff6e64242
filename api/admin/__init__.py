"""Endpoints for operators: health, doctor, metrics, rebuilds and quarantine."""
