"""The error of the demonstration."""


class DemoError(Exception):
    """Raised if the demonstration cannot run; the message is one line that names the cause and the remedy."""
