"""Applications that use Daybook, to read and to run."""
