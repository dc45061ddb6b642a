"""Define the lanes: for each, the tests and the way to run them."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tools.lanes.results import REPORTS

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"


class Extent(Enum):
    """The part of a lane's tests that a command runs."""

    CORE = "core"
    """The tests that `make test` runs: fast ones that are not `slow`, others that are marked `core`."""
    REST = "rest"
    """The tests that `make test` leaves out."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Lane:
    """Tests that are run alike, by pytest."""

    name: str
    about: str
    marks: str
    """Expression for `pytest -m` that selects the lane's tests."""
    core: str = "core"
    """Expression that selects the lane's tests that `make test` runs."""
    named: tuple[str, ...] = ()
    """Marks; each module of this lane uses at least one of them. Empty if any module may have tests of the
    lane.
    """
    without: tuple[str, ...] = ()
    """Marks; modules whose every test has one of them are not collected."""
    workers: str = "auto"
    """Number of pytest-xdist's workers; "0": the tests run one after the other."""
    options: tuple[str, ...] = ()
    extents: tuple[Extent, ...] = tuple(Extent)
    """CORE and ALL if `make test` runs all of the lane, REST and ALL if `make test` runs none of it."""
    only: tuple[str, ...] = ()
    """Paths of the test modules that run; empty if all of the lane's run."""

    @property
    def is_divided(self) -> bool:
        """True if `make test` runs a part of the lane."""
        return len(self.extents) == len(Extent)

    def expression(self, extent: Extent) -> str:
        """Return the expression for `pytest -m` that selects the lane's tests of this extent (core, rest or
        all).
        """
        if extent is Extent.ALL or not self.is_divided:
            return self.marks
        return f"({self.marks}) and {'' if extent is Extent.CORE else 'not '}({self.core})"

    def runs(self, extent: Extent) -> bool:
        """Return True if the lane has tests of this extent (core, rest or all)."""
        return extent in self.extents

    def pytest(self, extent: Extent) -> list[str]:
        """Return the arguments of pytest, without those that concern one run only."""
        xdist = [] if self.workers == "0" else ["-n", self.workers]
        return ["-m", self.expression(extent), *xdist, *self.options, *self.paths()]

    def paths(self) -> list[str]:
        """Return the paths that pytest collects, relative to the checkout, and the options for those that it
        ignores; not all paths, because collecting takes seconds. For each path pytest visits its directory.
        """
        if self.only or self.named:
            return [*self.only] or modules(rf"\bmark\.({'|'.join(self.named)})\b")
        whole = modules(rf"^pytestmark = .*\bmark\.({'|'.join(self.without)})\b")
        return ["tests", *(f"--ignore={path}" for path in whole)]

    def report(self, extent: Extent) -> Path:
        """Return the path of the lane's JUnit file."""
        return REPORTS / (f"{self.name}-{extent.value}.xml" if self.is_divided else f"{self.name}.xml")


def modules(pattern: str) -> list[str]:
    """Return the test modules with a match of this regular expression in their text."""
    finds = re.compile(pattern, re.MULTILINE).search
    found = (path for path in sorted(TESTS.rglob("test_*.py")) if finds(path.read_text("utf-8")))
    return [str(path.relative_to(ROOT)) for path in found]


def _busy_workers() -> str:
    """Return the number of workers that keep the cores busy: three for two cores, because tests with brokers
    wait half of their time.
    """
    return str(min(8, max(2, (os.cpu_count() or 2) * 3 // 2)))


ONE_BY_ONE: Final = ("--dist", "loadgroup")
"""Options with which an idle worker gets the next test in order, instead of a chunk of tests as by
pytest-xdist's default.
"""
_BROKERS: Final = ("broker", "oracle")
_ANY_BROKER: Final = "(broker or oracle) and not spark"

FAST: Final = Lane(
    "fast",
    "no broker, no Spark",
    "not broker and not oracle and not spark and not alone and not image",
    core="not slow",
    without=("broker", "oracle", "spark", "alone", "image"),
    workers=str(os.cpu_count() or 2),  # tests wait little, and each worker collects all of them
)
SPARK: Final = Lane(
    "spark",
    "the pipeline's jobs on Spark",
    "spark and not cluster",
    named=("spark",),
    workers="2",
    options=("--dist", "loadfile"),
)
CLUSTER: Final = Lane(
    "cluster",
    "the pipeline's jobs at a Spark master with two workers",
    "spark and cluster",
    named=("cluster",),
    workers="0",
    extents=(Extent.REST, Extent.ALL),
)
BROKERS: Final = Lane(
    "brokers",
    "real brokers and clients",
    f"{_ANY_BROKER} and not measured and not alone",
    named=_BROKERS,
    workers=_busy_workers(),
    options=ONE_BY_ONE,
)
MEASURED: Final = Lane(
    "measured",
    "rates and times at real brokers, four tests at once, which wait most of the time",
    f"{_ANY_BROKER} and measured and not alone",
    named=("measured",),
    workers="4",
    options=ONE_BY_ONE,
)
ALONE: Final = Lane(
    "alone",
    "what needs a core for itself",
    "alone and not spark",
    named=("alone",),
    workers="2",
    options=ONE_BY_ONE,
    extents=(Extent.REST, Extent.ALL),
)
IMAGE: Final = Lane(
    "image",
    "the container images and the Debian package, built and run",
    "image",
    named=("image",),
    workers="0",
    options=("-rP",),  # prints sizes and times
    extents=(Extent.REST, Extent.ALL),
)
LANES: Final = (FAST, SPARK, CLUSTER, BROKERS, MEASURED, ALONE, IMAGE)

PACKAGING: Final = (
    *(".dockerignore", "deploy/Dockerfile", "deploy/weir.service", "tools/debian.py"),
    *("pyproject.toml", "setup.py", "constraints.txt"),
)
"""Files after whose change CI builds and runs the plain image and Debian package."""

COMPILED: Final = Lane("compiled", "the data path, compiled by mypyc", FAST.marks, core=FAST.core)
"""The lane of compiled modules: the tests of `COMPILED_TESTS`, on a build that is made first."""
COMPILED_TESTS: Final = tuple(
    f"tests/{room}"
    for room in ("protocol", "quotas", "usage", "calibration", "proxy", "replication", "sim", "cli")
)

ALWAYS: Final = (
    "tests/proxy/test_address_fields.py",
    "tests/proxy/test_mutations.py",
    "tests/proxy/test_server.py",
    "tests/protocol/test_kafka_encodings.py",
    "tests/quotas/test_entities.py",
    "tests/quotas/test_rate.py",
    "tests/sim/test_simulation.py",
    "tests/tools/test_words.py",
)
"""Test modules that `make check` runs after any change. Each notices a kind of bug that the others miss, such
as a leaked address, a forgotten refund, or a quota of the wrong level.
"""

CHECKS: Final = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy",),
    ("lint-imports",),
    ("python", "-m", "tools.prose"),
)
"""Static checks; the programs are in the virtual environment's bin/."""


def check_commands() -> list[list[str]]:
    """Return the commands of the static checks, with the paths of the programs."""
    beside = Path(sys.executable).parent
    return [[str(beside / program), *arguments] for program, *arguments in CHECKS]
