"""Malformed requests: cases made from a well-formed request of an API and version.

- `marks`: places of the fields in a well-formed request.
- `edits`: bytes replaced at a place.
- `frames`, `bodies`, `tags`: functions that yield malformed frames.
- `classes`: the classes of malformed requests, and the outcomes that each permits.
- `sampling`: a sample of all cases of a version.
- `versions`: unknown APIs and versions.
- `target`: all of these for a target.
"""

from weir.conformance.probe.malformed.sampling import cases
from weir.conformance.probe.malformed.target import base_name, malformed
from weir.conformance.probe.malformed.versions import version_cases

__all__ = ["base_name", "cases", "malformed", "version_cases"]
