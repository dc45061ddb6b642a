"""Releases of Kafka as parameters of tests, some of which `make test` runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet


def core_at(releases: Iterable[str], *, core: Collection[str]) -> list[ParameterSet]:
    """Return each release as a parameter, those in `core` with that mark."""
    return [pytest.param(each, marks=[pytest.mark.core] if each in core else []) for each in releases]
