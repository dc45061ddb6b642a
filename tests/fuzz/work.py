"""The work of a call, counted: lines run and functions called, so that no clock is needed. And its memory."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple


class Cost(NamedTuple):
    steps: int
    """Number of Python lines run, and of calls of built-in functions."""
    peak_bytes: int
    """Maximum of the memory that was allocated at once."""


def cost(call: Callable[[], object]) -> Cost:
    """Run `call` twice: once to count its steps, once to measure its memory."""
    return Cost(steps(call), peak_bytes(call))


def steps(call: Callable[[], object]) -> int:
    """Return the number of Python lines that `call` runs, and of its calls of built-in functions."""
    count = 0

    def lines(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return lines

    def calls(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    before, profiled = sys.gettrace(), sys.getprofile()
    gc.disable()  # its callbacks (Hypothesis has one) would count
    sys.settrace(lines)
    sys.setprofile(calls)
    try:
        call()
    finally:
        sys.setprofile(profiled)
        sys.settrace(before)
        gc.enable()
    return count


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the maximum of the memory that `call` has allocated at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
