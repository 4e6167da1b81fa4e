"""Sources: kinds of data that a loader reads."""
