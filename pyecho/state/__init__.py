"""Saved states: positions, their checks, and other numbers of ranks."""
