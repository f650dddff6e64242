"""Restaurants and their waitlists: tickets of walk-in guests."""
