"""Workloads that several benchmarks share, and baselines."""
