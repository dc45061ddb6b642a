"""Decoders of peers' bytes raise documented errors only, whatever the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from tests.fuzz.guided import Search, search
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS, tls_names

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
"""It warns of serial numbers that are not positive; outside of tests a warning is no error."""
INPUTS, INPUTS_SLOW = 1500, 20_000
SLOWER = {"connections": 5, "replica-fetches": 5, "streams": 5}
"""An input of these targets costs this many of the others."""


@pytest.fixture(autouse=True)
def quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def findings(name: str, seed: int, inputs: int) -> list[str]:
    """Errors of a target's search."""
    found = search(TARGETS[name], seed, inputs // SLOWER.get(name, 1)).findings
    return [finding.error for finding in found.values()]


@pytest.mark.parametrize("name", TARGETS)
def test_decoders_raise_documented_errors_only(name: str) -> None:
    assert not findings(name, 1, INPUTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_decoders_raise_documented_errors_only_in_a_longer_search(name: str) -> None:
    assert not findings(name, 2, INPUTS_SLOW)


def test_equal_seeds_give_equal_inputs() -> None:
    first, second, other = (search(tls_names.PATTERNS, seed, 300) for seed in (1, 1, 2))
    assert first.kept == second.kept
    assert first.kept != other.kept


def with_fault(run: Callable[[bytes], None]) -> Search:
    """A search over a decoder of its own."""
    return search(Target("fault", run, lambda: [b"abc"]), 1, 500)


def test_an_undocumented_error_is_a_finding_with_its_input() -> None:
    def fails(data: bytes) -> None:
        if data[:1] != b"a":
            raise KeyError(data)

    (finding,) = with_fault(fails).findings.values()
    assert finding.data[:1] != b"a"
    assert "KeyError" in finding.error
