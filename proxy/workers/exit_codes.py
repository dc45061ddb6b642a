"""Exit codes of worker processes by which the supervisor knows why they ended."""

from typing import Final

REPLACED: Final = 78
"""The files on disk are of another version of Weir than the supervisor."""
