"""Format numbers with units: `1.5 MB/s`, `2.1 h`. Prefixes are decimal: 1 MB is 1,000,000 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple


class Step(NamedTuple):
    """One unit of a quantity, such as MB/s: its size in base units (bytes/s), and its name."""

    size: float
    name: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A kind of quantity, such as bytes/s, with its units from the smallest to the largest."""

    steps: tuple[Step, ...]

    def step(self, value: float) -> Step:
        """Return the largest unit that is not larger than `value` (in base units); the base unit if all are
        larger.
        """
        fitting = [step for step in self.steps if abs(value) >= step.size]
        return fitting[-1] if fitting and value else self.base

    def text(self, value: float | None) -> str:
        """Return a value (in base units) with its unit as text; a dash for None.

        >>> BYTES.text(1_234_567)
        '1.23 MB'
        """
        if value is None:
            return "-"
        size, name = self.step(value)
        return f"{number(value / size)}{name if name == '%' else f' {name}' if name else ''}"

    @property
    def base(self) -> Step:
        """The unit of size 1."""
        return next(step for step in self.steps if step.size == 1)


def _prefixed(unit: str) -> Quantity:
    prefixes = (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))
    return Quantity(tuple(Step(size, prefix + unit) for prefix, size in prefixes))


BYTES: Final = _prefixed("B")
BYTES_PER_S: Final = _prefixed("B/s")
SECONDS: Final = Quantity(
    (Step(0.001, "ms"), Step(1, "s"), Step(60, "min"), Step(3600, "h"), Step(86400, "days"))
)
COUNT: Final = Quantity((Step(1, ""), Step(1e6, "million"), Step(1e9, "billion")))
PER_S: Final = Quantity((Step(1, "/s"),))
PERCENT: Final = Quantity((Step(1, "%"),))


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
    many = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {what if count == 1 else many}"


def moment(ms: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """Return a time (ms) as text in UTC, in the form `form` of strftime."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
