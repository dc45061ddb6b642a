"""Options and fixtures of all tests."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.properties import register_profiles
from tests.rooms import ROOMS
from tests.selection import order_by_cluster, parse_part, select_part

if TYPE_CHECKING:
    from collections.abc import Iterator

register_profiles()

sys.modules.update(dict.fromkeys(ROOMS))  # type: ignore[arg-type]  # None: an import of the bare name fails

SPARKS_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Options of JVMs that end before optimized code would pay; Spark's scripts pass them on in silence."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--part`."""
    parser.addoption("--part", metavar="K/N", help="run only the K-th of N parts of the selected tests")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a bad `--part`; take interrupts.

    A shell starts what is in the background with SIGINT ignored, and processes pass that on: those that tests
    interrupt would not end.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, SPARKS_JAVA)
    if config.getoption("--part"):
        parse_part(config.getoption("--part"))


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the part that is asked for, and order the tests."""
    if config.getoption("--part"):
        select_part(config, items, *parse_part(config.getoption("--part")))
    order_by_cluster(items)


@pytest.fixture(autouse=True)
def log_configuration() -> Iterator[None]:
    """A test that runs the command line configures logging for the process: it ends with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
