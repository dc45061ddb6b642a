"""Makes a script smaller that breaks a rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.replication.script import Script
from tests.replication.world import fault

ALIKE: Final = 11
"""Number of characters at the end of two failures that must be the same."""


def shrink(script: Script, reason: str) -> Script:
    """Return a smaller script with a failure whose text ends like `reason`."""
    while True:
        for candidate in _smaller(script):
            if (fault(candidate) or "")[-ALIKE:] == reason[-ALIKE:]:
                script = candidate
                break
        else:
            return script


def _smaller(script: Script) -> Iterator[Script]:
    """Yield scripts without one of the parts. The last event is needed for the end of the run."""
    for n in range(len(script.followers) if len(script.followers) > 1 else 0):
        yield replace(script, followers=script.followers[:n] + script.followers[n + 1 :])
    for n in range(len(script.events) - 1):
        yield replace(script, events=script.events[:n] + script.events[n + 1 :])
    for n, produce in enumerate(script.logs):
        if produce.sizes:
            half = replace(produce, sizes=produce.sizes[: len(produce.sizes) // 2])
            yield replace(script, logs=(*script.logs[:n], half, *script.logs[n + 1 :]))
    for n in range(len(script.throttles)):
        yield replace(script, throttles=script.throttles[:n] + script.throttles[n + 1 :])
