"""The error of the demonstration."""


class DemoError(Exception):
    """The demonstration cannot run; the message is one line that names the cause and the remedy."""
