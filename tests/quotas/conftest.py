"""Hypothesis finds the same examples on every run: a failure is a failure for everyone."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no fault of ours
)
settings.load_profile("repeatable")
