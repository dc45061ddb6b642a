"""What all tests share."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure() -> None:
    """A shell starts what is in the background with SIGINT ignored, and processes pass that on: those that
    tests interrupt would not end.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def log_configuration() -> Iterator[None]:
    """A test that runs the command line configures logging for the process: it ends with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
