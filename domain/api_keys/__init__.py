"""API keys, their scopes and their secrets."""
