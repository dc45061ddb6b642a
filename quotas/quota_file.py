"""The quota file: text in, `QuotaTable` out, and back.

    [[quota]]
    user = "alice"                   # a principal's name, without "User:"
    client_id = "<default>"          # every client-id of alice that has no quota of its own
    producer_byte_rate = 1_048_576   # bytes per second
    consumer_byte_rate = 2_097_152
    controller_mutation_rate = 0.5   # partitions per second, created, added or deleted

TOML. An entity needs `user`, `client_id` or both, each a name or "<default>", and at least one quota. One
entity, one entry. A mistake raises `QuotaFileError`, whose message is one line: where, what, and what to do
about it. TOML readers do not tell where a value stood, so lines are found by looking for the headers again;
where that could mislead (headers in a multi-line string, or `quota = [...]` in one line), only the entry's
number is given.

>>> table = parse('[[quota]]\\nuser = "alice"\\nproducer_byte_rate = 1000\\n')
>>> print(render(table), end="")
[[quota]]
user = "alice"
producer_byte_rate = 1000
"""

from __future__ import annotations

import math
import re
import tomllib
from difflib import get_close_matches
from typing import TYPE_CHECKING

from quotas.entities import DEFAULT, Default, Entity, Name, Prefix
from quotas.table import Quota, QuotaKey, QuotaTable

if TYPE_CHECKING:
    from collections.abc import Iterable

ENTRY = "quota"
DEFAULT_MARKER = DEFAULT.value
NAME_KEYS = ("user", "client_id")
UNITS = {
    QuotaKey.PRODUCER_BYTE_RATE: "a whole number of bytes/s",
    QuotaKey.CONSUMER_BYTE_RATE: "a whole number of bytes/s",
    QuotaKey.CONTROLLER_MUTATION_RATE: "a number of partitions/s",
}
"""What Weir enforces, and so accepts; and what its values are."""
QUOTA_KEYS = {key.value: key for key in UNITS}
LATER_KEYS = tuple(key.value for key in QuotaKey if key.value not in QUOTA_KEYS)
RATE_MAX = 2**63 - 1
"""Kafka keeps byte rates in a long. Mutation rates are doubles; no burst of them overflows one below this."""

_HEADER = re.compile(rf"\s*\[\[\s*(?:{ENTRY}|\"{ENTRY}\"|'{ENTRY}')\s*\]\]")


class QuotaFileError(ValueError):
    """The quota file cannot be used. The message is one line, without the file's name."""


def parse(text: str) -> QuotaTable:
    """Read a quota file. Raises QuotaFileError."""
    document = _toml(text)
    entries = document.pop(ENTRY, [])
    for unknown in document:
        raise QuotaFileError(f"unknown key {_shown(unknown)}; begin each quota with [[{ENTRY}]]")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise QuotaFileError(f"{ENTRY!r} is not a list of tables; begin each entry with [[{ENTRY}]]")
    places = _Places(text, len(entries))
    values: dict[Quota, float] = {}
    seen: dict[Entity, int] = {}
    for number, entry in enumerate(entries, start=1):
        entity, rates = _Entry(entry, number, places).read()
        first = seen.setdefault(entity, number)
        if first != number:
            raise QuotaFileError(
                f"{places.entry(number)}: {entity} has an entry already, {places.entry(first)}; merge the two"
            )
        values.update({(entity, key): rate for key, rate in rates.items()})
    return QuotaTable(values)


def render(table: QuotaTable) -> str:
    """Write a quota file that `parse` reads back as an equal table.

    Raises QuotaFileError for what the format cannot say: a name that is literally `<default>`, a lone
    surrogate in a name, a byte rate with a fraction, a quota that is not enforced yet.
    """
    return "\n".join(
        "".join(f"{line}\n" for line in _lines(entity, rates)) for entity, rates in table.entities()
    )


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # not only TOMLDecodeError: numbers of 5000 digits, deep nesting
        last = text.count("\n") + 1
        what = str(error).replace("(at end of document)", f"(at line {last}, the end)")
        raise QuotaFileError(f"not valid TOML: {' '.join(what.split())}; correct this place") from error


class _Places:
    """Where the entries stand in the text, as far as can be told."""

    def __init__(self, text: str, entries: int) -> None:
        self._lines = text.split("\n")
        headers = [number for number, line in enumerate(self._lines, start=1) if _HEADER.match(line)]
        self._headers = headers if len(headers) == entries else []

    def entry(self, number: int) -> str:
        """The place of an entry; both numbers count from 1."""
        header = f" (line {self._headers[number - 1]})" if self._headers else ""
        return f"[[{ENTRY}]] entry {number}{header}"

    def key(self, number: int, key: str) -> str:
        """The place of a key of an entry."""
        if self._headers:
            start = self._headers[number - 1]
            stop = self._headers[number] - 1 if number < len(self._headers) else len(self._lines)
            pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
            for line in range(start + 1, stop + 1):
                if pattern.match(self._lines[line - 1]):
                    return f"[[{ENTRY}]] entry {number} (line {line})"
        return self.entry(number)


class _Entry:
    """One `[[quota]]` table on its way to an entity and its rates."""

    def __init__(self, entry: dict[str, object], number: int, places: _Places) -> None:
        self._entry = entry
        self._number = number
        self._places = places

    def read(self) -> tuple[Entity, dict[QuotaKey, float]]:
        for key in self._entry:
            self._check_key(key)
        user, client_id = (self._name(key) for key in NAME_KEYS)
        if user is None and client_id is None:
            raise self._error(
                f'says neither user nor client_id; add one, or both ("{DEFAULT_MARKER}" means the default)'
            )
        rates = {key: self._rate(name) for name, key in QUOTA_KEYS.items() if name in self._entry}
        if not rates:
            raise self._error(f"sets no quota; add {_either(QUOTA_KEYS)}")
        return Entity(user, client_id), rates

    def _check_key(self, key: str) -> None:
        if key in LATER_KEYS:
            raise self._error(f"{key} is not enforced yet; remove it", key)
        if key not in NAME_KEYS and key not in QUOTA_KEYS:
            raise self._error(_unknown(key, [*NAME_KEYS, *QUOTA_KEYS]), key)

    def _name(self, key: str) -> Name | None:
        name = self._entry.get(key)
        if name is None:
            return None
        if not isinstance(name, str):
            raise self._error(f"{key} must be a string, not {_shown(name)}; put it in quotes", key)
        if not name:
            raise self._error(f'{key} is empty; give a name, "{DEFAULT_MARKER}", or leave {key} out', key)
        return DEFAULT if name == DEFAULT_MARKER else name

    def _rate(self, key: str) -> float:
        rate = self._entry[key]
        quota_key = QUOTA_KEYS[key]
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not _is_unit(quota_key, rate):
            raise self._error(f"{key} must be {UNITS[quota_key]}, not {_shown(rate)}", key)
        if rate <= 0:
            raise self._error(f"{key} must be above 0, not {_shown(rate)}; remove it to lift the limit", key)
        if rate > RATE_MAX:
            raise self._error(
                f"{key} must be at most {RATE_MAX}, not {_shown(rate)}; remove it to lift the limit", key
            )
        return float(rate)

    def _error(self, what: str, key: str | None = None) -> QuotaFileError:
        places = self._places
        where = places.entry(self._number) if key is None else places.key(self._number, key)
        return QuotaFileError(f"{where}: {what}")


def _unknown(key: str, known: list[str]) -> str:
    close = get_close_matches(key.lower(), known, n=1)
    advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
    return f"unknown key {_shown(key)}; {advice}"


def _either(names: Iterable[str]) -> str:
    return " or ".join(names)


def _shown(value: object) -> str:
    """A value as in the file, nearly, in one short line."""
    text = _quoted(value) if isinstance(value, str) else str(value)
    text = text.lower() if isinstance(value, bool) else " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lines(entity: Entity, rates: dict[QuotaKey, float]) -> Iterable[str]:
    yield f"[[{ENTRY}]]"
    for key, name in zip(NAME_KEYS, (entity.user, entity.client_id), strict=True):
        if name is not None and not isinstance(name, Prefix):
            yield f"{key} = {_quoted(_written(key, name))}"
    for quota_key, rate in rates.items():
        if quota_key not in QUOTA_KEYS.values():
            raise QuotaFileError(f"{quota_key.value} of {entity} is not enforced yet; remove it")
        yield f"{quota_key.value} = {_number(entity, quota_key, rate)}"


def _written(key: str, name: Name) -> str:
    if isinstance(name, Default):
        return DEFAULT_MARKER
    if name == DEFAULT_MARKER:
        raise QuotaFileError(f"a {key} that is called {name} cannot be told from the default; rename it")
    if any("\ud800" <= char <= "\udfff" for char in name):
        raise QuotaFileError(f"{key} {name!a} is not valid Unicode; rename it")
    return name


def _number(entity: Entity, key: QuotaKey, rate: float) -> str:
    """A rate as TOML: without a point if it is whole, else such that it reads back exactly."""
    if rate > float(RATE_MAX) or not _is_unit(key, rate):
        raise QuotaFileError(f"{key.value} of {entity} is {rate}; it must be {UNITS[key]} up to {RATE_MAX}")
    return str(min(int(rate), RATE_MAX)) if _is_whole(rate) else repr(rate)  # as a double it is 1 more


def _is_unit(key: QuotaKey, rate: float) -> bool:
    """Whether the rate is what `UNITS` says."""
    return _is_whole(rate) or (key is QuotaKey.CONTROLLER_MUTATION_RATE and not math.isnan(rate))


def _is_whole(rate: float) -> bool:
    return rate == rate // 1  # not true of nan, nor of infinity


def _quoted(text: str) -> str:
    """A TOML basic string."""
    return f'"{"".join(_escaped(char) for char in text)}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08X}"
