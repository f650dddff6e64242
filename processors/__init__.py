"""Process managers: they react to events and due times by sending commands."""
