"""Benchmarks: each figure in the documentation is printed by one of these."""
