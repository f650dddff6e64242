"""Settings: read from flags, environment and files, and validated."""
