"""Decoders of peers' bytes raise documented errors only, whatever the bytes."""

from __future__ import annotations

import pytest
import structlog

from tests.fuzz.guided import Search, search
from tests.fuzz.kept import CORPUS, CORPUS_BYTES_MAX, kept_inputs
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
"""It warns of serial numbers that are not positive; outside of tests a warning is no error."""
INPUTS = 200
SLOWER = {"connections": 5, "replica-fetches": 5, "streams": 5}
"""An input of these targets costs this many of the others."""


@pytest.fixture(autouse=True)
def quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


@pytest.mark.parametrize("name", TARGETS)
def test_decoders_raise_documented_errors_only(name: str) -> None:
    """Inputs kept from long searches (`make fuzz`) reach most branches, so changes of them need no guide."""
    found = Search(TARGETS[name], seed=1)
    found.run_blindly(INPUTS // SLOWER.get(name, 1), kept_inputs(name))
    assert not [finding.error for finding in found.findings.values()]


def test_an_undocumented_error_is_a_finding() -> None:
    def fails(data: bytes) -> None:
        if data[:1] != b"a":
            raise KeyError(data)

    target = Target("fault", fails, lambda: [b"abc"])
    blind = Search(target, seed=1)
    blind.run_blindly(500)
    for found in (blind, search(target, 1, 500)):
        (finding,) = found.findings.values()
        assert "KeyError" in finding.error


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    files = [file for file in CORPUS.rglob("*") if file.is_file()]
    assert {file.parent.name for file in files} <= TARGETS.keys()
    assert sum(file.stat().st_size for file in files) < CORPUS_BYTES_MAX
