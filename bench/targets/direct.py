"""The target without a proxy: the load generator sends its requests to the broker itself."""

from __future__ import annotations

from typing import Final

from bench.targets.target import Running, Surroundings, Target


def _start(surroundings: Surroundings) -> Running:
    return Running(surroundings.broker_port, None)


DIRECT: Final = Target("direct", "no proxy", _start)
