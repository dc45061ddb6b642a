"""Hypothesis finds the same examples on every run: a failure is a failure for everyone."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=150)
settings.load_profile("repeatable")
