"""Endpoints of jobs, queues and dead letters."""
