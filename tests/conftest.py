"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.properties import register_profiles
from tests.rooms import ROOMS
from tests.scheduling import by_release
from tests.selection import limit_sparks_time, order_by_cluster, parse_part, select_part, skip_after

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from xdist.remote import Producer

register_profiles()

sys.modules.update(dict.fromkeys(ROOMS))  # type: ignore[arg-type]  # None: an import of the bare name fails

SPARKS_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of JVMs that end before optimized code would pay; Spark's scripts pass them on in silence.

To verify classes of locked jars takes a quarter of the CPU time in which a session starts.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="run only the K-th of N parts of the selected tests")
    parser.addoption(
        "--until", metavar="TIME", type=float, help="skip tests that would begin later (s since 1970)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a bad `--part`; take interrupts, and SIGTERM as one, so that fixtures end their processes.

    A shell starts what is in the background with SIGINT ignored, and processes pass that on: those that tests
    interrupt would not end.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, SPARKS_JAVA)
    if config.getoption("--part"):
        parse_part(config.getoption("--part"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the modules and the collected tests, which live until the end, from the garbage collector: each of
    its runs would visit them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the part that is asked for, and order the tests."""
    if config.getoption("--part"):
        select_part(config, items, *parse_part(config.getoption("--part")))
    limit_sparks_time(items)
    order_by_cluster(items)


@pytest.hookimpl(optionalhook=True)  # there is no pytest-xdist with `-p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> object:
    """Distribute the tests of lanes with brokers, the only ones that run with `--dist loadgroup`."""
    return by_release(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)  # before fixtures, which start brokers
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test if the time of `--until` is over."""
    until_s = item.config.getoption("--until")
    if until_s is not None:
        skip_after(until_s)


@pytest.fixture(scope="session")
def drawn_seed(pytestconfig: pytest.Config) -> int | None:
    """Return the seed of new examples (`--hypothesis-seed`), with which a second run has the same ones."""
    seed = pytestconfig.getoption("--hypothesis-seed")
    return None if seed is None else int(seed)


@pytest.fixture(autouse=True)
def log_configuration() -> Iterator[None]:
    """A test that runs the command line configures logging for the process: it ends with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
