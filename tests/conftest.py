"""What all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def log_configuration() -> Iterator[None]:
    """A test that runs the command line configures logging for the process: it ends with the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
