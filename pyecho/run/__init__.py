"""The run of a loader: its nodes, threads and epochs."""
