"""Valid and invalid histories."""
