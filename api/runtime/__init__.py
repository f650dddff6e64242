"""The service behind the endpoints: commits, reads, waiters and load shedding."""
