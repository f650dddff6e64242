"""The worker: claims jobs, runs handlers and reports outcomes."""
