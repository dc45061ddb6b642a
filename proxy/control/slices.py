"""Divide long work into short steps: sockets are served between the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def slices(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of this size; the last one may be shorter. Pass a copy of a collection that
    may change between two steps.
    """
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part


def taken(items: dict[K, T], size: int) -> Iterator[list[tuple[K, T]]]:
    """Remove the items from a dictionary, the latest first, and yield them in lists of this size; the last
    list may be shorter. So no step has to free a large dictionary.
    """
    while items:
        yield [items.popitem() for _ in range(min(size, len(items)))]
