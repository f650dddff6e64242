"""The table of schedules."""
