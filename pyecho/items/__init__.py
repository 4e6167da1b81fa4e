"""Items: nests, their specs, rows and shared storage."""
