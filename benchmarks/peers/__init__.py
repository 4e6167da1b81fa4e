"""pyecho beside its peers: the same work, each in an environment and a process of its own."""
