"""API keys: cache, format, administration and the first key."""
