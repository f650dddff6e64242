"""Tables and lists of orders and bots."""
