"""Process managers: what the service does by itself when something happened or fell due."""
