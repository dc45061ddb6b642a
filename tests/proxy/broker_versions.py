"""The API versions of real brokers, as kafka-python records them."""

from __future__ import annotations

import importlib
import warnings
from typing import Final

from weir.protocol.versions import VersionRange

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # it reads its schemas by a function deprecated in 3.11
    BROKER_DATA: Final = importlib.import_module("kafka.protocol.broker_version_data")
BROKER_API_VERSIONS: Final[dict[tuple[int, ...], dict[int, tuple[int, int]]]] = (
    BROKER_DATA.BROKER_API_VERSIONS
)


def broker_of(release: tuple[int, ...]) -> dict[int, VersionRange]:
    """The versions of a broker, from kafka-python's records of real ones."""
    return {int(key): VersionRange(*found) for key, found in BROKER_API_VERSIONS[release].items()}
