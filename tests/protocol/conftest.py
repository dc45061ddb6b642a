"""Hypothesis is deterministic here; tests that go through every message version say how few examples they
need.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "protocol",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no fault of ours
)
settings.load_profile("protocol")
