"""Advice on the echo factor: what a pipeline does at each factor, and what limits it."""
