"""The time that sessions see beside their `now_ms`: in microseconds, for gaps below one ms."""

from __future__ import annotations


class Clock:
    """Set by whoever moves the bytes, once per turn; shared by all its sessions."""

    __slots__ = ("now_us",)

    def __init__(self, now_us: int = 0) -> None:
        self.now_us = now_us
