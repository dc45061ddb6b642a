"""Tell which build of Weir runs: compiled by mypyc, or plain Python."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec


def build() -> str:
    """Return "compiled" if the data path is compiled by mypyc (a wheel built with WEIR_COMPILE=1), else "pure
    Python".
    """
    spec = find_spec("weir.proxy.connection.connection")
    origin = None if spec is None else spec.origin
    return "compiled" if origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure Python"
