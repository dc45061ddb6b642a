"""What the demonstration gives up with."""


class DemoError(Exception):
    """Surroundings that the demonstration cannot run in; its text is one line that says what to do."""
