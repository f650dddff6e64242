"""Messages, and operations: pushes that are accepted now and executed later."""
