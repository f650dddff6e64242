"""Pure deciders and commands: no SQL, HTTP, clock, environment or randomness."""
