"""The error that the demonstration reports as a message, without a traceback."""


class DemoError(Exception):
    """A failure with a message of one sentence: the need, the finding, the remedy."""
