"""Hypothesis is deterministic here; tests that go through every message version say how few examples they
need.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("protocol", derandomize=True, deadline=None, database=None)
settings.load_profile("protocol")
