"""Format numbers with units: `1.5 MB/s`, `2.1 h`. Prefixes are decimal: 1 MB is 1,000,000 bytes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from weir.quotas.table.quota_kind import RECORDED

_BASES: Final = {"bytes/s": "B/s", "percent": "%", "partitions/s": "/s"}
OF_QUOTA: Final[Mapping[str, str]] = {key.value: _BASES[kind.unit] for key, kind in RECORDED.items()}
"""Base unit of each quota."""
_PREFIXES: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    **{base: {prefix + base: size for prefix, size in _PREFIXES.items()} for base in ("B", "B/s")},
    "s": {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0},
    "": {"": 1.0, "million": 1e6, "billion": 1e9},
}
"""Names and sizes of units, by base unit; other base units have no multiples."""


def unit_of(value: float, base: str) -> tuple[float, str]:
    """Return size and name of the largest unit that is not larger than `value` (in base units); the base unit
    if all are larger.
    """
    fitting = [(size, name) for name, size in _UNITS.get(base, {}).items() if abs(value) >= size]
    return max(fitting, default=(1.0, base))


def text(value: float | None, base: str = "") -> str:
    """Return a value (in base units) with its unit as text; a dash for None.

    >>> text(1_234_567, "B"), text(2, "%"), text(None)
    ('1.23 MB', '2%', '-')
    """
    if value is None:
        return "-"
    size, name = unit_of(value, base)
    return f"{number(value / size)}{name if name in ('', '%') else f' {name}'}"


def number(value: float) -> str:
    """Return a number as text with three significant digits, and commas between thousands.

    >>> [number(value) for value in (0, 0.01234, 2, 12.345, 1234567.8)]
    ['0', '0.0123', '2', '12.3', '1,234,568']
    """
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def share(part: float, whole: float) -> str:
    """Return the share `part` of `whole` in percent as text; a dash if `whole` is 0.

    >>> share(1, 1000), share(0, 5), share(1, 100_000), share(0, 0)
    ('0.1%', '0%', 'less than 0.01%', '-')
    """
    if not whole:
        return "-"
    percent = 100 * part / whole
    return "less than 0.01%" if 0 < percent < 0.01 else f"{number(percent)}%"


def plural(count: int, what: str) -> str:
    """Return a count as text with the singular or plural of a noun.

    >>> plural(1, "broker"), plural(2000, "broker")
    ('1 broker', '2,000 brokers')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def moment(ms: int, form: str) -> str:
    """Return a time (ms) as text in UTC, in the form `form` of strftime."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
