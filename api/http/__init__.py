"""Reading requests and writing responses."""
