"""The rooms: the folders whose code is imported as `weir.<room>`."""

from __future__ import annotations

import shutil
from pathlib import Path
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
SOURCES: Final = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
"""Files that a build reads, beside those of the rooms."""


def copy_sources(folder: Path) -> Path:
    """Copy what a build reads into this folder, and return it: a build leaves files beside the sources."""
    root = Path(__file__).parents[1]
    for name in SOURCES:
        shutil.copy(root / name, folder)
    for room in ("weir", *ROOMS):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / room, folder / room, symlinks=True, ignore=ignored)
    return folder
