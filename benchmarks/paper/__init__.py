"""The experiments of the data-echoing paper, at a scale that two CPU cores can train."""
