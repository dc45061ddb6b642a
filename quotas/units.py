"""Quantities with units, as operators write them: sizes and durations in options, the configuration file and
the quota file. A number without a unit is in the key's own unit.

    256KiB, 1MB, 1.5G     sizes: K, M, G are powers of 1000; Ki, Mi, Gi are powers of 1024
    500ms, 30s, 5m, 1h    durations

>>> parse("1MB", "bytes"), parse("1MiB", "bytes"), parse("5m", "s"), parse("1.5s", "ms"), parse("30", "ms")
(1000000, 1048576, 300, 1500, 30)
"""

# mypyc: skip, because only the reading of settings calls it.
from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_QUANTITY: Final = re.compile(r"(?P<number>\d{1,30}(\.\d{0,30})?|\.\d{1,30})\s*(?P<unit>[A-Za-z]*)", re.ASCII)
_POWERS: Final = {letter: power for power, letter in enumerate("kmgt", start=1)}
_SIZES: Final[dict[str, Decimal]] = {
    "b": Decimal(1),
    **{f"{letter}{b}": Decimal(1000**power) for letter, power in _POWERS.items() for b in ("", "b")},
    **{f"{letter}i{b}": Decimal(1024**power) for letter, power in _POWERS.items() for b in ("", "b")},
}
"""Factor (bytes) of each unit of sizes in lower case: b, k, kb, ki, kib, m, …"""
_SECONDS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
"""Factor (s) of each unit of durations. "d" is left out: no setting lasts days."""
_MILLISECONDS: Final = {unit: factor * 1000 for unit, factor in _SECONDS.items()}
_FACTORS: Final[dict[str, dict[str, Decimal]]] = {
    "": {},
    "bytes": _SIZES,
    "s": _SECONDS,
    "ms": _MILLISECONDS,
}

EXAMPLES: Final = {
    "": "a plain number",
    "bytes": "a number of bytes, such as 1048576, 1MB (10^6) or 256KiB (2^10)",
    "s": "a number of seconds, or a duration such as 500ms, 30s, 5m or 1h",
    "ms": "a number of milliseconds, or a duration such as 500ms, 30s, 5m or 1h",
}
"""Unit of a key → text for error messages that says how to write a quantity."""
_UNIT_OF_PART: Final = {"bytes": "bytes", "ms": "ms", "s": "s", "seconds": "s"}


def unit_of(key: str) -> str | None:
    """Return the unit in the name of a setting (bytes, s or ms), such as s for `drain_timeout_s` and bytes
    for `frame_bytes_max`; None if the setting is no size and no duration.
    """
    found = [_UNIT_OF_PART[part] for part in key.split("_") if part in _UNIT_OF_PART]
    return found[-1] if found else None


def parse(text: str, unit: str) -> float:
    """Return a quantity in `unit` (bytes, s or ms; "" for a number without unit); an int if it is whole.
    Raises ValueError, whose text gives examples.
    """
    match = _QUANTITY.fullmatch(text.strip())
    written = match["unit"] if match is not None else ""
    factor = _FACTORS[unit].get(written.lower() if unit == "bytes" else written) if written else Decimal(1)
    if match is None or factor is None:
        raise ValueError(EXAMPLES[unit])
    amount = Decimal(match["number"]) * factor  # as a float, 1.1M is not a whole number
    return int(amount) if amount == amount.to_integral_value() else float(amount)
