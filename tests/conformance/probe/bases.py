"""Well-formed requests of every API and version, and malformed ones made from them."""

from __future__ import annotations

from functools import cache

from weir.conformance.probe.case import Case
from weir.conformance.probe.malformed import base_name, malformed
from weir.conformance.probe.requests import Names, well_formed
from weir.protocol import schema
from weir.protocol.api import versions
from weir.protocol.versions import VersionRange

NAMES = Names("weir-probe-12345678")


def offered() -> dict[int, VersionRange]:
    return {key: found for key in schema.api_keys() if (found := versions(key)) is not None}


@cache
def well_formed_by_name() -> dict[str, Case]:
    return {case.name: case for case in well_formed(offered(), NAMES, 0, randoms=0)}


@cache
def malformed_cases(seed: int = 0) -> tuple[Case, ...]:
    return tuple(malformed(offered(), NAMES, seed))


def base(case: Case) -> Case | None:
    """The well-formed request that a malformed one was made from; None if no such request is harmless."""
    return well_formed_by_name().get(base_name(case))


def class_of(case: Case) -> str:
    """Name of a case's class; "" for one that has no API of its own."""
    parts = case.name.split("/")
    return parts[2] if len(parts) > 3 else ""


def place_of(case: Case) -> str:
    """Path of the field that a case changes, or another name of the place."""
    return case.name.split("/")[3]
