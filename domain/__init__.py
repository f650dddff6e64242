"""What Daybook promises: pure deciders. No SQL, HTTP, clock, environment or randomness."""
