"""Waits for a state of the target that it reaches by itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_S: Final = 0.1


def until(reached: Callable[[], bool], within_s: float) -> bool:
    """Ask again and again whether the state is reached. Return False if it is not, in `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not reached():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_PAUSE_S)
    return True
