"""What the demonstration reports to the person in front of it, rather than as a traceback."""


class DemoError(Exception):
    """A failure that one sentence explains: what was needed, what was found, what to do."""
