"""Tables beside the log that hold no events: rate-limit windows and guest encryption keys."""
