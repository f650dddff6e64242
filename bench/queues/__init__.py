"""The queues that are measured beside each other: one module each, run as worker processes."""
