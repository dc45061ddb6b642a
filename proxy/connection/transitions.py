"""The entry of the tables of states for an event that cannot happen."""

from __future__ import annotations

from typing import Final

IMPOSSIBLE: Final = 99
"""Entry of a table for an event that cannot happen in a state. It is no row of a table, so a connection that
comes here anyway fails at its next transition.
"""
