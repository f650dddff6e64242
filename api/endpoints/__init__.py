"""Base classes of endpoints, and their router."""
