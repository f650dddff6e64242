"""Real processes: services, workers, receivers and the clients that record them."""
