"""The demonstration from start to end; whatever it starts has ended when it returns, or is interrupted."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from demo.client_specs import CLIENTS
from demo.measure import Reading, Result, used_up
from demo.rows import Scene
from demo.screens import MEASURE, WARM_UP, Screen
from demo.stage import WARM_UP_S, Part, playing, stage, ticks

SETTLE_S: Final = 10.0
"""How long it may take until all have been throttled, usually one."""


def run(upstream: str | None, seconds: float, screen: Screen) -> bool:
    """Show the demonstration, in front of a mock cluster if `upstream` is None; return whether it passed.

    Raises DemoError.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-demo-")))
        set_up = stack.enter_context(stage(upstream, folder))
        stack.enter_context(screen)
        clients = sum(spec.clients for spec in CLIENTS)
        scene = Scene(set_up.cluster, set_up.upstream, clients, seconds)
        screen.open(scene)
        for part in set_up.parts:
            part.warm_up()
        with playing(set_up.parts):
            results = _measure(set_up.parts, seconds, screen)
        screen.close(scene, results)
    return not any(result.failure for result in results)


def _measure(parts: Sequence[Part], seconds: float, screen: Screen) -> list[Result]:
    """Fill the quotas' windows evenly, then measure. Raises DemoError."""
    cold = [part.read() for part in parts]
    for elapsed_s in ticks(WARM_UP_S):
        screen.update(WARM_UP, elapsed_s / WARM_UP_S, _results(parts, cold))
    for part in parts:
        part.speed_up()
    for _ in ticks(SETTLE_S):
        if all(used_up(part.spec, part.read()) for part in parts):
            break
    began = [part.read() for part in parts]
    results = _results(parts, began)
    for elapsed_s in ticks(seconds):
        results = _results(parts, began)
        screen.update(MEASURE, elapsed_s / seconds, results)
    return results


def _results(parts: Sequence[Part], began: Sequence[Reading]) -> list[Result]:
    return [
        Result(part.spec, part.brokers, reading, part.read())
        for part, reading in zip(parts, began, strict=True)
    ]
