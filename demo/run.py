"""Run the demonstration from start to end; all its processes have ended when `run` returns or is
interrupted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from demo.client_specs import CLIENTS
from demo.environment import WARM_UP_S, ClientSet, environment, running, ticks
from demo.measure import Reading, Result, used_up
from demo.rows import Scene
from demo.screens import MEASURE, WARM_UP, Screen

SETTLE_S: Final = 10.0
"""Maximum time (s) to wait until all clients with a quota were throttled, which usually takes one second."""


def run(upstream: str | None, seconds: float, screen: Screen) -> bool:
    """Run the demonstration, with a mock cluster if `upstream` is None; return True if all rates pass.
    Measure for `seconds`. Raises DemoError if it cannot run.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-demo-")))
        env = stack.enter_context(environment(upstream, folder))
        stack.enter_context(screen)
        clients = sum(spec.clients for spec in CLIENTS)
        scene = Scene(env.cluster, env.upstream, clients, seconds)
        screen.open(scene)
        for client_set in env.client_sets:
            client_set.warm_up()
        with running(env.client_sets):
            results = _measure(env.client_sets, seconds, screen)
        screen.close(scene, results)
    return not any(result.failure for result in results)


def _measure(client_sets: Sequence[ClientSet], seconds: float, screen: Screen) -> list[Result]:
    """Let the clients run at exactly their quotas to warm up, then measure them at full speed. Return one
    result per `ClientSpec`. Raises DemoError.
    """
    cold = [client_set.read() for client_set in client_sets]
    for elapsed_s in ticks(WARM_UP_S):
        screen.update(WARM_UP, elapsed_s / WARM_UP_S, _results(client_sets, cold))
    for client_set in client_sets:
        client_set.speed_up()
    for _ in ticks(SETTLE_S):
        if all(used_up(client_set.spec, client_set.read()) for client_set in client_sets):
            break
    began = [client_set.read() for client_set in client_sets]
    results = _results(client_sets, began)
    for elapsed_s in ticks(seconds):
        results = _results(client_sets, began)
        screen.update(MEASURE, elapsed_s / seconds, results)
    return results


def _results(client_sets: Sequence[ClientSet], began: Sequence[Reading]) -> list[Result]:
    return [
        Result(client_set.spec, client_set.brokers, reading, client_set.read())
        for client_set, reading in zip(client_sets, began, strict=True)
    ]
