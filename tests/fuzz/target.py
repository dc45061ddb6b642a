"""A decoder under test: any bytes in, nothing out; an exception is a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Grow: TypeAlias = Callable[[int], bytes]
"""Number of elements → an input with that many."""


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    run: Callable[[bytes], None]
    """Decode the bytes and compare. Raises AssertionError, or any other undocumented error: a finding."""
    seeds: Callable[[], Sequence[bytes]]
    """Return valid inputs, equal at every call."""
    growing: Callable[[], Mapping[str, Grow]] = field(default=dict)
    """Return adversarial inputs by name. A decoder's work and memory must grow with their size, no faster."""


def chosen(data: bytes, count: int) -> tuple[int, bytes]:
    """Return the index below `count` that the first two bytes choose, and the bytes behind them."""
    return int.from_bytes(data[:2]) % count, data[2:]


def choosing(index: int, data: bytes) -> bytes:
    return index.to_bytes(2) + data
