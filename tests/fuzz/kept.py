"""Inputs that earlier searches found and reduced: corpus/TARGET/, a file for each.

An input is there because it reaches branches that the seeds of its target do not reach. The inputs are seeds
of later searches. So the tests run them too. `python -m tests.fuzz --keep` searches again, and replaces the
files. An input chooses its message by an index, which changes when a version is added; it is then an input
like any other, until the next `--keep`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from tests.fuzz.guided import Search

CORPUS: Final = Path(__file__).with_name("corpus")
CORPUS_BYTES_MAX: Final = 200_000
"""Maximum size (bytes) of all files together."""
TARGET_BYTES_MAX: Final = 6000
"""Maximum size (bytes) of a target's files together."""
TARGET_INPUTS_MAX: Final = 24
INPUT_COST_BYTES: Final = 32
"""Size (bytes) that counts for each input in addition, so that one that reaches more branches is preferred to
several small ones.
"""
SHORTER_MAX: Final = 300
"""Maximum number of shorter inputs that are tried in place of one."""


def kept_inputs(name: str, directory: Path = CORPUS) -> list[bytes]:
    return [file.read_bytes() for file in sorted((directory / name).glob("*"))]


def keep(name: str, inputs: Iterable[bytes], directory: Path = CORPUS) -> None:
    for file in (directory / name).glob("*"):
        file.unlink()
    for data in inputs:
        (directory / name).mkdir(parents=True, exist_ok=True)
        (directory / name / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)


def reduced(search: Search) -> list[bytes]:
    """Return few short inputs of a search that reach the branches that the target's seeds do not reach, as
    far as the limits permit.
    """
    seeds = list(search.target.seeds())
    known = frozenset[int]().union(*(search.reach(data) for data in seeds))
    found = {data: search.reach(data) - known for data in search.kept if data not in seeds}
    chosen: list[bytes] = []
    left = TARGET_BYTES_MAX
    while found and len(chosen) < TARGET_INPUTS_MAX:
        best = max(found, key=lambda data: len(found[data]) / (len(data) + INPUT_COST_BYTES))
        wanted = found.pop(best)
        if not wanted:
            break
        best = shortened(best, lambda data, wanted=wanted: wanted <= search.reach(data))  # type: ignore[misc]  # mypy: a lambda's default
        if len(best) > left:
            continue
        chosen.append(best)
        left -= len(best)
        reached = search.reach(best)
        found = {data: branches - reached for data, branches in found.items()}
    return chosen


def shortened(data: bytes, is_enough: Callable[[bytes], bool]) -> bytes:
    """Return `data` without the parts that `is_enough` does not need."""
    size, tried = len(data) // 2, 0
    while size and tried < SHORTER_MAX:
        at = 0
        while at < len(data) and tried < SHORTER_MAX:
            shorter = data[:at] + data[at + size :]
            tried += 1
            if is_enough(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data
