"""Values of requests, per API: meaningful, and harmless to all that the run does not own.

A recipe maps a field to its legal values: "Struct.field", or "field" in any struct, or an entity type of
the schemas ("<topicName>"). The minimal shape takes the first value. The maximal shape takes the last value,
and within arrays one value per element, in order. The random shape takes any. None stands for null, and
is left out where a version has no null.

"field[]" gives the legal numbers of an array's elements, None for a null array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.requests.recipes.administration import ADMINISTRATION
from weir.conformance.probe.requests.recipes.common import Recipe, common
from weir.conformance.probe.requests.recipes.groups import GROUPS
from weir.conformance.probe.requests.recipes.harmful import HARMFUL
from weir.conformance.probe.requests.recipes.records import RECORDS

if TYPE_CHECKING:
    from weir.conformance.probe.requests.names import Names

__all__ = ["HARMFUL", "Recipe", "recipe"]

_RECIPES: Final = {**RECORDS, **GROUPS, **ADMINISTRATION}


def recipe(api_key: int, names: Names) -> Recipe:
    """Return the recipe of an API's requests, in the version of `names`."""
    own = _RECIPES.get(api_key, {})
    return {**common(names), **(own(names) if callable(own) else own)}
