"""Benchmarks. Each measures alternatives side by side in one run, and writes its figures and a plot.

A module here without a leading underscore is a benchmark: `ladle bench NAME`.
"""
