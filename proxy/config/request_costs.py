"""Check the settings that change the estimates of request time: a file of costs by API, and factors by
broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.proxy.config.settings import ConfigError
from weir.proxy.files import read_text
from weir.quotas.costs.request_costs import CostsError, Overrides, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weir.proxy.config.settings import Settings

SCALE_MAX: Final = 1000.0
FILE_BYTES_MAX: Final = 1 << 20
"""Maximum size (bytes) of the file of costs. A file with every cost of every API has less than a hundredth of
this.
"""
NODE_ID_MAX: Final = 2**31 - 1
_SHOWN_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class RequestTimeRules:
    """The operator's changes to the estimates of request time that Weir ships: costs by API, and factors."""

    costs: Overrides = field(default_factory=Overrides)
    scale: float = 1.0
    """Factor for the estimates of every broker without a factor of its own."""
    scales: Mapping[int, float] = field(default_factory=dict)
    """Factors for the estimates of single brokers by node id; these apply instead of `scale`."""

    def scale_of(self, node_id: int | None) -> float:
        """Return the factor for the estimates of this broker; None is a broker whose node id is not known."""
        return self.scale if node_id is None else self.scales.get(node_id, self.scale)


def request_time_rules(settings: Settings) -> RequestTimeRules:
    """Return the operator's changes to the estimates of request time, read from the settings and the file of
    costs. Raises ConfigError.
    """
    costs = _read(Path(settings.request_costs)) if settings.request_costs else Overrides()
    scale, scales = _scales(settings.request_time_scale)
    return RequestTimeRules(costs, scale, scales)


def _read(path: Path) -> Overrides:
    known = (schema.api(key) for key in ApiKey)
    names = frozenset(api.name for api in known if api is not None)
    try:
        return parse(read_text(path, FILE_BYTES_MAX), names)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read request_costs: {error.strerror}") from None
    except CostsError as error:
        raise ConfigError(f"{path}: request_costs: {error}") from None


def _scales(text: str) -> tuple[float, dict[int, float]]:
    """Parse a setting such as `1.2`, `1=0.8;2=1.25` or `1.2;2=1.25`. Return the factor for brokers without
    one of their own, and the factors by node id. Raises ConfigError.
    """
    scales: dict[int | None, float] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        node, equals, factor = part.rpartition("=")
        node_id = _node_id(text, node) if equals else None
        if node_id in scales:
            raise _unusable(text)
        scales[node_id] = _factor(text, factor)
    scale = scales.pop(None, 1.0)
    return scale, {node_id: factor for node_id, factor in scales.items() if node_id is not None}


def _factor(text: str, factor: str) -> float:
    try:
        value = float(factor)
    except ValueError:
        raise _unusable(text) from None
    if not 0 < value <= SCALE_MAX:  # False for NaN
        raise _unusable(text)
    return value


def _node_id(text: str, node: str) -> int:
    try:
        node_id = int(node)
    except ValueError:
        raise _unusable(text) from None
    if not 0 <= node_id <= NODE_ID_MAX:
        raise _unusable(text)
    return node_id


def _unusable(text: str) -> ConfigError:
    wanted = (
        f"a factor above 0, at most {SCALE_MAX:g}, or NODE=FACTOR[;NODE=FACTOR...], such as 1=0.8;2=1.25, "
        "each once"
    )
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    return ConfigError(f"request_time_scale is {shown!r}, must be {wanted}")
