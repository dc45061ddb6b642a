"""Tell which Weir runs: its version, and whether mypyc has compiled it."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final


def installed_version() -> str:
    """Return the version of Weir on disk; "unknown" if Weir is not installed as a package."""
    try:
        return version("kafka-weir")
    except PackageNotFoundError:
        return "unknown"


VERSION: Final = installed_version()
"""Version of this process. The files on disk may have another version if they were replaced meanwhile."""


def build() -> str:
    """Return "compiled" if the data path is compiled by mypyc (a wheel built with WEIR_COMPILE=1), else "pure
    Python".
    """
    spec = find_spec("weir.proxy.connection.connection")
    origin = None if spec is None else spec.origin
    return "compiled" if origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure Python"
