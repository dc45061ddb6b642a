"""Descriptors: how many there may be, and what a process has open."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

from tests.integration.descriptors import family

WANTED = 25_000


def raise_descriptor_limit() -> int:
    """Allow this process, and those that it starts, `WANTED` descriptors or as many as the system lets it;
    return how many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < WANTED:
        with suppress(ValueError, OSError):  # for root only
            resource.setrlimit(resource.RLIMIT_NOFILE, (WANTED, WANTED))
            return WANTED
    if soft < min(WANTED, hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(WANTED, hard), hard))
    return max(soft, min(WANTED, hard))


def resident_bytes(pid: int) -> int:
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in family(pid))
    return pages * resource.getpagesize()
