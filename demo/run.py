"""Run the demonstration from start to end; all its processes have ended when `run` returns or is
interrupted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from weir.demo.client_specs import CLIENTS
from weir.demo.environment import WARM_UP_S, ClientSet, Environment, environment, running, ticks
from weir.demo.measure import ClientReading, ClientResult, Span, used_up
from weir.demo.rows import Scene
from weir.demo.screens import BEFORE, MEASURE, RELOAD, START, WARM_UP, Screen

BEFORE_S: Final = 5.0
"""Duration (s) of the measurement without quotas."""
SETTLE_S: Final = 10.0
"""Maximum time (s) to wait until all clients send, or until all clients with a quota were throttled. Both
usually take one or two seconds.
"""


def run(upstream: str | None, seconds: float, screen: Screen) -> bool:
    """Run the demonstration, with a mock cluster if `upstream` is None; return True if all rates pass.
    Measure for `seconds` under quotas. Raises DemoError if it cannot run.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-demo-")))
        stack.enter_context(screen)
        screen.begin(START)
        env = stack.enter_context(environment(upstream, folder, enforced=False))
        clients = sum(spec.clients for spec in CLIENTS)
        scene = Scene(env.cluster, env.upstream, clients, seconds, BEFORE_S)
        screen.open(scene)
        with running(env.client_sets):
            results = _measure(env, seconds, screen)
        screen.close(scene, results)
    return not any(result.failure for result in results)


def _measure(env: Environment, seconds: float, screen: Screen) -> list[ClientResult]:
    """Measure the clients without quotas. Then write the quotas, let the clients run at exactly their quotas
    to warm up, and measure them above their quotas. Return one result per `ClientSpec`. Raises DemoError.
    """
    sets = env.client_sets
    _wait(lambda: all(reading.payload_bytes for reading in _read(sets)))
    began = _read(sets)
    before = _spans(sets, began)
    for elapsed_s in ticks(BEFORE_S):
        before = _spans(sets, began)
        screen.update(BEFORE, elapsed_s / BEFORE_S, _results(sets, before))
    env.enforce_quotas()
    for client_set in sets:
        client_set.warm_up()

    def observe(
        phase: str, phase_s: float, is_over: Callable[[], bool] = lambda: False
    ) -> list[ClientResult]:
        began = _read(sets)
        results = _results(sets, before, _spans(sets, began))
        for elapsed_s in ticks(phase_s):
            results = _results(sets, before, _spans(sets, began))
            screen.update(phase, elapsed_s / phase_s, results)
            if is_over():
                break
        return results

    observe(RELOAD, SETTLE_S, lambda: any(reading.throttled for reading in _read(sets)))
    observe(WARM_UP, WARM_UP_S)
    for client_set in sets:
        client_set.speed_up()
    _wait(lambda: all(used_up(client_set.spec, client_set.read()) for client_set in sets))
    return observe(MEASURE, seconds)


def _wait(is_over: Callable[[], bool]) -> None:
    """Wait until `is_over` returns True, at most `SETTLE_S` seconds."""
    for _ in ticks(SETTLE_S):
        if is_over():
            break


def _read(client_sets: Sequence[ClientSet]) -> list[ClientReading]:
    return [client_set.read() for client_set in client_sets]


def _spans(client_sets: Sequence[ClientSet], began: Sequence[ClientReading]) -> list[Span]:
    return [Span(*pair) for pair in zip(began, _read(client_sets), strict=True)]


def _results(
    client_sets: Sequence[ClientSet], before: Sequence[Span], after: Sequence[Span] | None = None
) -> list[ClientResult]:
    return [
        ClientResult(each.spec, each.brokers, before[number], after[number] if after else None)
        for number, each in enumerate(client_sets)
    ]
