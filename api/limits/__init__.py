"""Rate limits and depth limits of queues."""
