"""The table of API keys."""
