"""Example applications of Daybook."""
