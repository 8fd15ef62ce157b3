"""Benchmarks, and the figures of the README."""
