"""One `[[quota]]` entry of a quota file: its keys and values, in both directions.

An entry has an entity (`NAME_KEYS`), a mode (`MODE_KEY`: enforced or shadow), options (`PACING_KEY`,
`SCOPE_KEY`, `UNTIL_KEY`), and the quotas that its entity can have (`keys_of`). Each quota is a number of its
unit within its bounds (`quota_kind`).
"""

# mypyc: skip, because it reads and writes quota files; no request calls it.
from __future__ import annotations

import math
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas import units
from weir.quotas.table.entities import DEFAULT, Default, Entity, Name, Prefix
from weir.quotas.table.names import canonical_ip
from weir.quotas.table.options import PLAIN, Options, Pacing, Scope
from weir.quotas.table.quota_kind import IN_BYTES, KINDS, UNLIMITED, QuotaKey
from weir.quotas.table.quota_table import has_budgets, keys_of
from weir.quotas.table.times import in_utc, written_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

ENTRY: Final = "quota"
DEFAULT_MARKER: Final = DEFAULT.value
NAME_KEYS: Final = ("user", "client_id", "client_id_prefix", "ip", "topic", "topic_prefix", "group")
MODE_KEY: Final = "mode"
MODES: Final = {"enforce": False, "shadow": True}
"""Value of `mode` → True for a shadow entry."""
PACING_KEY: Final = "pacing"
SCOPE_KEY: Final = "scope"
UNTIL_KEY: Final = "until"
_QUOTA_KEYS: Final = {key.value: key for key in KINDS}
_PACINGS: Final = {pacing.value: pacing for pacing in Pacing}
_SCOPES: Final = {scope.value: scope for scope in Scope}
KNOWN_KEYS: Final = (*NAME_KEYS, MODE_KEY, PACING_KEY, SCOPE_KEY, UNTIL_KEY, *_QUOTA_KEYS)
_DEFAULT_CAPABLE: Final = frozenset({"user", "client_id", "ip"})

_INSTEAD_OF_DEFAULT: Final = {
    "client_id_prefix": f'write client_id = "{DEFAULT_MARKER}"',
    "topic": "write an entry for each topic",
    "topic_prefix": "write an entry for each prefix",
    "group": 'group = "<all>" is every client',
}


class QuotaFileError(ValueError):
    """Raised if a quota file cannot be read or written. The message is one line, without the file's name."""


class EntryError(ValueError):
    """Raised if an entry is invalid. The message is the error and the remedy, in one line."""

    def __init__(self, what: str, key: str | None = None) -> None:
        """Begin with the message `what`. `key`: the invalid key, for finding its line; None for the whole
        entry.
        """
        super().__init__(what)
        self.key = key


class Entry(NamedTuple):
    """One entry of a quota file: entity, mode, quotas and options."""

    entity: Entity
    is_shadow: bool
    """True if the entry is a shadow entry."""
    rates: dict[QuotaKey, float]
    """Quota → value (units per second, or percent of one thread)."""
    options: Options = PLAIN

    def __str__(self) -> str:
        """Return entity and mode, such as `user alice, in shadow`."""
        return f"{self.entity}, in shadow" if self.is_shadow else str(self.entity)


def read_entry(values: Mapping[str, object]) -> Entry:
    """Return the entry in a TOML table. Raises EntryError."""
    for key in values:
        _check_key(key)
    entity = _entity({key: _name(key, values[key]) for key in NAME_KEYS if key in values})
    rates = {key: _rate(name, values[name]) for name, key in _QUOTA_KEYS.items() if name in values}
    keys = keys_of(entity)
    for rate in rates:
        if rate not in keys:
            raise EntryError(
                f"{rate.value} cannot be set for {_kind(entity)}; use {_fitting(entity)}", rate.value
            )
    if not rates:
        raise EntryError(f"sets no quota; add {_fitting(entity)}")
    return Entry(entity, _is_shadow(values), rates, _options(values, entity))


def entry_lines(
    entry: Entry, comments: Mapping[QuotaKey, Iterable[str]] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the lines of TOML for an entry, each quota below its comments. `read_entry` reads an equal entry
    from these lines. Raises QuotaFileError if the format cannot represent the entry.
    """
    entity, is_shadow, rates, (pacing, scope, until) = entry
    yield f"[[{ENTRY}]]"
    is_prefix = isinstance(entity.client_id, Prefix)
    for key, name in (
        ("user", entity.user),
        ("client_id_prefix" if is_prefix else "client_id", entity.client_id),
        ("ip", entity.ip),
        ("topic", entity.topic),
        ("topic_prefix", entity.topic_prefix),
        ("group", entity.group),
    ):
        if name is not None:
            yield f"{key} = {quoted(_written(key, name))}"
    if is_shadow:
        yield f'{MODE_KEY} = "shadow"'
    if pacing is not None:
        yield f"{PACING_KEY} = {quoted(pacing.value)}"
    if scope is not Scope.BROKER:
        yield f"{SCOPE_KEY} = {quoted(scope.value)}"
    if until is not None:
        yield f"{UNTIL_KEY} = {written_time(until)}"
    for quota_key, rate in rates.items():
        yield from map(comment, comments.get(quota_key, ()))
        yield f"{quota_key.value} = {number(entity, quota_key, rate)}"


def comment(text: str) -> str:
    """Return a comment of one line. Line ends, and characters that TOML forbids in comments, are escaped.

    >>> comment("of etl\\n[[quota]]")
    '# of etl\\\\U0000000A[[quota]]'
    """
    return f"# {''.join(char if char.isprintable() else _code(char) for char in text)}".rstrip()


def number(entity: Entity, key: QuotaKey, rate: float) -> str:
    """Return a rate as TOML: without a point if it is whole, else with all digits needed to read it back.

    Raises QuotaFileError if `read_entry` would refuse the rate.
    """
    if key not in keys_of(entity):
        raise QuotaFileError(f"{key.value} cannot be set for {_kind(entity)} ({entity}); remove it")
    if not least(key) <= rate <= float(most(key)) or not _is_unit(key, rate):
        bounds = f"from {_plain(least(key))} to {most(key)}"
        raise QuotaFileError(f"{key.value} of {entity} is {rate}; it must be {KINDS[key].value} {bounds}")
    if rate >= most(key):
        return quoted(UNLIMITED)
    return str(int(rate)) if _is_whole(rate) else repr(rate)


def least(key: QuotaKey) -> float:
    """Return the smallest value that a quota file may give to this quota."""
    return KINDS[key].least


def most(key: QuotaKey) -> int:
    """Return the largest value that a quota file may give to this quota."""
    return KINDS[key].most


def shown(value: object) -> str:
    """Return a value of the file as one line of at most 60 characters, for messages."""
    text = quoted(value) if isinstance(value, str) else str(value)
    text = text.lower() if isinstance(value, bool) else " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_key(key: str) -> None:
    if key not in KNOWN_KEYS:
        close = get_close_matches(key.lower(), KNOWN_KEYS, n=1)
        advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(KNOWN_KEYS)}"
        raise EntryError(f"unknown key {shown(key)}; {advice}", key)


def _name(key: str, name: object) -> Name:
    if not isinstance(name, str):
        raise EntryError(f"{key} must be a string, not {shown(name)}; put it in quotes", key)
    marker = f'"{DEFAULT_MARKER}", ' if key in _DEFAULT_CAPABLE else ""
    if not name:
        choice = f"give a name, {marker}or leave" if marker else "give one, or leave"
        raise EntryError(f"{key} is empty; {choice} {key} out", key)
    if name == DEFAULT_MARKER:
        if not marker:
            raise EntryError(f"{key} has no default; {_INSTEAD_OF_DEFAULT[key]}", key)
        return DEFAULT
    return _ip(name) if key == "ip" else name


def _ip(address: str) -> str:
    try:
        return canonical_ip(address)
    except ValueError:
        raise EntryError(
            f'ip must be an IPv4 or IPv6 address or "{DEFAULT_MARKER}", not {shown(address)}; '
            "write a host's address, not its name",
            "ip",
        ) from None


def _entity(names: Mapping[str, Name]) -> Entity:
    """Return the entity with these names (key of the file → name). Raises EntryError."""
    if not names:
        raise EntryError(
            "does not say whom it is for; add user, client_id or client_id_prefix, or user and one of these, "
            f'or ip, topic, topic_prefix or group ("{DEFAULT_MARKER}" means the default)'
        )
    for key in ("ip", "topic", "topic_prefix", "group"):
        if key in names and len(names) > 1:
            other = next(name for name in names if name != key)
            raise EntryError(f"{key} stands alone; write an entry of its own for {other}", key)
    if "client_id" in names and "client_id_prefix" in names:
        raise EntryError("client_id and client_id_prefix exclude each other; write two entries", "client_id")
    prefix, *alone = (
        name if isinstance(name, str) else None
        for name in map(names.get, ("client_id_prefix", "topic", "group", "topic_prefix"))
    )
    client_id = names.get("client_id") if prefix is None else Prefix(prefix)
    return Entity(names.get("user"), client_id, names.get("ip"), *alone)


def _rate(name: str, rate: object) -> float:
    key = _QUOTA_KEYS[name]
    written = rate
    if rate == UNLIMITED:
        return float(most(key))
    if isinstance(rate, str) and key in IN_BYTES:
        try:
            rate = units.parse(rate, "bytes")
        except ValueError as error:
            raise EntryError(f"{name} must be {error}, not {shown(written)}", name) from None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not _is_unit(key, rate):
        raise EntryError(f"{name} must be {KINDS[key].value}, not {shown(written)}", name)
    bound = (
        "above 0"
        if rate <= 0
        else f"at least {_plain(least(key))}"
        if rate < least(key)
        else f"at most {most(key)}"
        if rate > most(key)
        else ""
    )
    if bound:
        raise EntryError(f"{name} must be {bound}, not {shown(written)}; remove it to lift the limit", name)
    return float(rate)


def _is_shadow(values: Mapping[str, object]) -> bool:
    return MODES[_one_of(MODES, values.get(MODE_KEY, "enforce"), MODE_KEY, "leave it out to enforce")]


def _options(values: Mapping[str, object], entity: Entity) -> Options:
    pacing, scope = None, Scope.BROKER
    for key in (PACING_KEY, SCOPE_KEY):
        if key in values and not has_budgets(entity):
            raise EntryError(f"{key} cannot be set for {_kind(entity)}; remove it", key)
    if PACING_KEY in values:
        remedy = "leave it out for the configured one"
        pacing = _PACINGS[_one_of(_PACINGS, values[PACING_KEY], PACING_KEY, remedy)]
    if SCOPE_KEY in values:
        remedy = "leave it out for a budget at each broker"
        scope = _SCOPES[_one_of(_SCOPES, values[SCOPE_KEY], SCOPE_KEY, remedy)]
    return Options(pacing, scope, _until(values[UNTIL_KEY]) if UNTIL_KEY in values else None)


def _until(written: object) -> datetime:
    try:
        return in_utc(written)
    except ValueError as error:
        remedy = "; leave out the quotes" if isinstance(written, str) else ""
        raise EntryError(f"{UNTIL_KEY} must be {error}, not {shown(written)}{remedy}", UNTIL_KEY) from None


def _one_of(known: Iterable[str], value: object, key: str, remedy: str) -> str:
    """Return the value if it is one of `known`; else raise EntryError."""
    if not isinstance(value, str) or value not in known:
        raise EntryError(f"{key} must be {_either(map(quoted, known))}, not {shown(value)}; {remedy}", key)
    return value


def _kind(entity: Entity) -> str:
    return (
        "an ip"
        if entity.ip is not None
        else "a group"
        if entity.group is not None
        else "a topic"
        if entity.topic is not None
        else "a topic prefix"
        if entity.topic_prefix is not None
        else "users and client-ids"
    )


def _fitting(entity: Entity) -> str:
    return _either(key.value for key in keys_of(entity))


def _either(names: Iterable[str]) -> str:
    return " or ".join(names)


def _written(key: str, name: Name | Prefix) -> str:
    """Return a user, client-id or other name in the spelling of a quota file, without quotes. Raises
    QuotaFileError if the format cannot represent it.
    """
    if isinstance(name, Default):
        return DEFAULT_MARKER
    text = name.start if isinstance(name, Prefix) else name
    if text == DEFAULT_MARKER:
        raise QuotaFileError(f"a {key} that is called {text} cannot be told from the default; rename it")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise QuotaFileError(f"{key} {text!a} is not valid Unicode; rename it")
    if key == "ip" and not _is_canonical(text):
        raise QuotaFileError(f"ip {text!a} is not an address as it is usually written; rename it")
    return text


def _is_canonical(address: str) -> bool:
    try:
        return canonical_ip(address) == address
    except ValueError:
        return False


def _is_unit(key: QuotaKey, rate: float) -> bool:
    """Return True if the rate is a possible value of its quota: a whole number or, for quotas that may have a
    fraction, any number except NaN.
    """
    return _is_whole(rate) or (KINDS[key].type == "DOUBLE" and not math.isnan(rate))


def _is_whole(rate: float) -> bool:
    return rate == rate // 1  # False for nan and infinity


def _plain(bound: float) -> str:
    """Return a minimum or maximum as text for error messages, without an exponent if it is at least 1e-6."""
    return f"{bound:f}" if 1e-6 <= bound < 1 else str(bound)


def quoted(text: str) -> str:
    """Return a TOML basic string."""
    return f'"{"".join(_escaped(char) for char in text)}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else _code(char)


def _code(char: str) -> str:
    return f"\\U{ord(char):08X}"
