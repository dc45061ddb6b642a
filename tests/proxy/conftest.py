"""Hypothesis is deterministic here."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("proxy", derandomize=True, deadline=None, database=None)
settings.load_profile("proxy")
