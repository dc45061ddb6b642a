"""Tables of states, written for readers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

IMPOSSIBLE: Final = 99
"""Entry of a table for an event that cannot happen in a state. It is no row of a table, so a connection that
comes here anyway fails at its next transition.
"""


def written_table(
    states: type[IntEnum], triggers: type[IntEnum], follows: Sequence[Sequence[int]], head: str
) -> str:
    """Return the transitions between states as a Markdown table: a row per state, a column per trigger.
    `follows` has the next state by state and trigger.
    """
    rows = [[head, *(trigger.name for trigger in triggers)], ["---"] * (len(triggers) + 1)]
    for state in states:
        cells = (_cell(states, state, follows[state][trigger]) for trigger in triggers)
        rows.append([state.name, *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(states: type[IntEnum], state: int, follower: int) -> str:
    if follower == IMPOSSIBLE:
        return ""
    return "·" if follower == state else states(follower).name
