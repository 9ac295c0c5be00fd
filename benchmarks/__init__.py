"""Benchmarks. Each measures alternatives side by side in one run, and writes its figures and a plot.

A module here without a leading underscore that has a `DESCRIPTION` is a benchmark: `make bench BENCH_ARGS=NAME`.
"""
