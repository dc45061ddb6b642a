"""Decoders of peers' bytes raise documented errors only, whatever the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from tests.fuzz.guided import Search, search
from tests.fuzz.kept import CORPUS, CORPUS_BYTES_MAX, keep, kept_inputs, reduced, shortened
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS, tls_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    found = search(TARGETS[name], seed, inputs // SLOWER.get(name, 1), kept_inputs(name)).findings
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


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    files = [file for file in CORPUS.rglob("*") if file.is_file()]
    assert {file.parent.name for file in files} <= TARGETS.keys()
    assert sum(file.stat().st_size for file in files) < CORPUS_BYTES_MAX


@pytest.mark.parametrize("name", ["codecs", "captures", "captured-records"])
def test_kept_inputs_reach_branches_that_seeds_do_not_reach(name: str) -> None:
    kept = kept_inputs(name)
    assert kept
    with_seeds, with_both = search(TARGETS[name], 1, 0), search(TARGETS[name], 1, 0, kept)
    assert set(kept) <= set(with_both.kept)
    assert len(with_both.branches.reached) > len(with_seeds.branches.reached)


def test_a_search_is_reduced_to_short_inputs_with_the_same_branches(tmp_path: Path) -> None:
    target = tls_names.PATTERNS
    found = search(target, 1, 2000)
    inputs = reduced(found)
    keep(target.name, [b"an older one"], tmp_path)
    keep(target.name, inputs, tmp_path)
    assert set(kept_inputs(target.name, tmp_path)) == set(inputs)
    assert 0 < sum(map(len, inputs)) < sum(map(len, found.kept))
    assert len(search(target, 1, 0, inputs).branches.reached) == len(found.branches.reached)


def test_an_input_is_shortened_to_the_bytes_that_matter() -> None:
    assert shortened(b"0123456789" * 20 + b"ab" + b"9" * 99, lambda data: b"ab" in data) == b"ab"
