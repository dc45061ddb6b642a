"""Exit codes of the `weir` command, stable across releases."""

from typing import Final

DONE: Final = 0
FAILED: Final = 1
"""What was asked for did not come true (a demo whose rates miss their quotas)."""
USAGE: Final = 2
"""Usage, configuration, or surroundings that Weir cannot start in."""
