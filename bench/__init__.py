"""Benchmarks that compare contenders within one run: `./run bench …`."""
