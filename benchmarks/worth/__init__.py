"""The worth of repeats, and remedies beside them."""
