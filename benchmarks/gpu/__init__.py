"""The measurements of `benchmarks/gpu.py`, one module for each."""
