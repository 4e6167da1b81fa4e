"""Commands, advice and displays."""
