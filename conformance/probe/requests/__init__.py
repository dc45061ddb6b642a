"""Well-formed requests for every API and version that a target offers.

- `names`: the topic, groups and ids that requests name. They belong to one run of the probe.
- `recipes`: per API, the values that make a request meaningful and harmless; the APIs without such values.
- `records`: record batches for Produce.
- `generator`: messages in shapes (minimal, maximal, random), and the cases that send them.
"""

from __future__ import annotations

from weir.conformance.probe.requests.generator import NO_ACKS, request, shapes, well_formed
from weir.conformance.probe.requests.names import Names
from weir.conformance.probe.requests.recipes import HARMFUL

__all__ = ["HARMFUL", "NO_ACKS", "Names", "request", "shapes", "well_formed"]
