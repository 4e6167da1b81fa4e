"""Advice on the echo factor: speed of a pipeline at each factor, and its limit."""
