"""The write path: commands are batched, decided and committed."""
