"""Waiting for what other processes do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

ENDED = 60.0
"""Time (s) after which something is taken for a hang, also on a busy machine."""


def is_gone(pid: int) -> bool:
    """Whether a process ended; one that nobody has waited for yet (a zombie) did."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except FileNotFoundError:
        return Path("/proc/self/stat").exists()  # ended just now; without /proc (macOS) it still runs


def eventually(is_so: Callable[[], bool], within_s: float = ENDED) -> bool:
    """Whether something that other processes do came true in this time."""
    pause, deadline = threading.Event(), time.monotonic() + within_s
    while not is_so() and time.monotonic() < deadline:
        pause.wait(0.02)
    return is_so()
