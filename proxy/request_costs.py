"""What the configuration says about request time: an operator's file of costs, and factors of brokers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from protocol import schema
from protocol.api import ApiKey
from proxy.config_error import ConfigError
from quotas.request_costs import CostsError, Overrides, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.settings import Settings

SCALE_MAX: Final = 1000.0


@dataclass(frozen=True, slots=True)
class RequestTimeRules:
    """How request time is estimated, where that differs from the shipped figures."""

    costs: Overrides = field(default_factory=Overrides)
    scale: float = 1.0
    """What estimates are multiplied with."""
    scales: Mapping[int, float] = field(default_factory=dict)
    """The same of single brokers, by node id."""

    def scale_of(self, node_id: int | None) -> float:
        """Return the factor of a broker."""
        return self.scale if node_id is None else self.scales.get(node_id, self.scale)


def request_time_rules(settings: Settings) -> RequestTimeRules:
    """Read what is configured. Raises ConfigError."""
    costs = _read(Path(settings.request_costs)) if settings.request_costs else Overrides()
    scale, scales = _scales(settings.request_time_scale)
    return RequestTimeRules(costs, scale, scales)


def _read(path: Path) -> Overrides:
    known = (schema.api(key) for key in ApiKey)
    names = frozenset(api.name for api in known if api is not None)
    try:
        return parse(path.read_text("utf-8"), names)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read request_costs: {error.strerror}") from None
    except (CostsError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: request_costs: {error}") from None


def _scales(text: str) -> tuple[float, dict[int, float]]:
    """Parse `1.2`, `1=0.8;2=1.25`, or both: `1.2;2=1.25`."""
    scale, scales = 1.0, {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        node, equals, factor = part.rpartition("=")
        value = _factor(text, factor)
        if equals:
            scales[_node_id(text, node)] = value
        else:
            scale = value
    return scale, scales


def _factor(text: str, factor: str) -> float:
    try:
        value = float(factor)
    except ValueError:
        raise _unusable(text) from None
    if not 0 < value <= SCALE_MAX:  # NaN is not
        raise _unusable(text)
    return value


def _node_id(text: str, node: str) -> int:
    try:
        return int(node)
    except ValueError:
        raise _unusable(text) from None


def _unusable(text: str) -> ConfigError:
    wanted = f"a factor above 0, at most {SCALE_MAX:g}, or NODE=FACTOR[;NODE=FACTOR...], such as 1=0.8;2=1.25"
    return ConfigError(f"request_time_scale is {text!r}, must be {wanted}")
