"""Rounds, scratch databases, services and clients of the benchmarks."""
