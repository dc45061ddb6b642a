"""Count function calls: a cost that does not depend on the machine."""

import gc
import sys
from collections.abc import Callable


def calls_made(work: Callable[[], object]) -> int:
    """How many functions, ours or built in, were called: a cost that does not depend on the machine."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    gc.disable()  # its callbacks (Hypothesis has one) would count
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls
