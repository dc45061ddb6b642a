"""The rooms: the folders whose code is imported as `weir.<room>`."""

from __future__ import annotations

from typing import Final

ROOMS: Final = (
    "calibration",
    "cli",
    "conformance",
    "demo",
    "pipeline",
    "protocol",
    "proxy",
    "quotas",
    "usage",
)
