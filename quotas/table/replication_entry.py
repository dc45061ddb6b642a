"""One `[[replication]]` entry of a quota file: the replication throttles (KIP-73) of a broker, of all brokers
or of a topic, in both directions.

    [[replication]]
    broker = 1                                      # a node id; "<default>" is every broker without its own
    leader.replication.throttled.rate = "10MB"      # bytes/s; 0 stops these replicas
    [[replication]]
    topic = "orders"
    leader.replication.throttled.replicas = "0:1,1:2"

The keys are Kafka's names. TOML nests keys with dots (`leader.replication…`); `read_replication` joins them
again, so that a quoted key is the same. An entry has no mode and no options.
"""

# mypyc: skip, because it reads and writes quota files; no request calls it.
from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas import units
from weir.quotas.replication.throttles import (
    KEYS_OF,
    NODE_ID_MAX,
    RATE_KEYS,
    RATE_MAX,
    ConfigKey,
    Replicas,
    ReplicationThrottles,
    ResourceType,
    parse_rate,
)
from weir.quotas.table.quota_entry import DEFAULT_MARKER, EntryError, QuotaFileError, quoted, shown
from weir.quotas.table.quota_kind import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

REPLICATION: Final = "replication"
BROKER_KEY: Final = "broker"
TOPIC_KEY: Final = "topic"

_CONFIGS: Final = {name: kind for kind, names in KEYS_OF.items() for name in names}
"""Name of each configuration → type of the resource that has it."""
_KNOWN_KEYS: Final = (BROKER_KEY, TOPIC_KEY, *_CONFIGS)
_DOTS: Final = 3
"""Number of dots in the name of a configuration."""
_RATE: Final = "a whole number of bytes/s"


class Resource(NamedTuple):
    """A broker, all brokers or a topic."""

    kind: ResourceType
    name: str
    """Name of the topic, or node id of the broker in decimal; "" for all brokers without a value of their
    own.
    """

    def __str__(self) -> str:
        """Return a text such as `broker 1`, `broker <default>` or `topic orders`."""
        return f"{self.kind.name.lower()} {self.name or DEFAULT_MARKER}"

    @classmethod
    def of(cls, key: ConfigKey) -> Resource:
        """Return the resource that has this configuration."""
        return cls(key.resource_type, key.resource_name)


class ReplicationEntry(NamedTuple):
    """One entry: a resource, and its throttles."""

    resource: Resource
    values: dict[str, str]
    """Name of each configuration → value, in Kafka's form."""

    def __str__(self) -> str:
        """Return the resource, such as `broker 1`."""
        return str(self.resource)


def read_replication(table: Mapping[str, object]) -> ReplicationEntry:
    """Return the entry in a TOML table. Raises EntryError."""
    values = dict(_flat(table))
    for key in values:
        _check_key(key)
    resource = _resource(values)
    configs = KEYS_OF[resource.kind]
    for key in values:
        if key in _CONFIGS and key not in configs:
            raise EntryError(f"{key} cannot be set for a {_kind(resource)}; use {_either(configs)}", key)
    said = {key: _value(key, value) for key, value in values.items() if key in configs}
    if not said:
        raise EntryError(f"sets no throttle; add {_either(configs)}")
    return ReplicationEntry(resource, said)


def replication_lines(entry: ReplicationEntry) -> Iterator[str]:
    """Yield the lines of TOML for an entry. `read_replication` reads an equal entry from these lines. Raises
    QuotaFileError if the format cannot represent the entry.
    """
    yield f"[[{REPLICATION}]]"
    yield f"{_kind(entry.resource)} = {_written_name(entry.resource)}"
    for key, value in entry.values.items():
        yield f"{key} = {written_value(entry.resource, key, value)}"


def written_value(resource: Resource, key: str, value: str) -> str:
    """Return a throttle as a value of TOML: a rate as a number, replicas as a string. Raises QuotaFileError
    if `read_replication` would refuse the value, or read another one.
    """
    try:
        if _value(key, value) != value:  # Kafka ignores spaces around a number, and keeps them
            raise EntryError(f"{key} must be {_RATE}, not {shown(value)}")
        if key not in KEYS_OF[resource.kind]:
            raise EntryError(f"{key} cannot be set for a {_kind(resource)}")
    except EntryError as error:
        raise QuotaFileError(f"{resource}: {error}") from None
    return value if key in RATE_KEYS and str(parse_rate(value)) == value else quoted(value)


def replication_entries(throttles: ReplicationThrottles) -> list[ReplicationEntry]:
    """Return the entries of these throttles, one for each resource."""
    return grouped(throttles.values)


def grouped(values: Mapping[ConfigKey, str]) -> list[ReplicationEntry]:
    """Return one entry for each resource that has values, in the order of the values."""
    entries: dict[Resource, dict[str, str]] = {}
    for key, value in values.items():
        entries.setdefault(Resource.of(key), {})[key.name] = value
    return [ReplicationEntry(resource, its) for resource, its in entries.items()]


def throttles_of(entries: Iterable[ReplicationEntry]) -> ReplicationThrottles:
    return ReplicationThrottles(
        {ConfigKey(*resource, name): value for resource, values in entries for name, value in values.items()}
    )


def _flat(table: Mapping[str, object], before: str = "", dots: int = _DOTS) -> Iterator[tuple[str, object]]:
    """Yield (key, value) of a TOML table, where keys of inner tables are joined by dots. Tables that are
    nested deeper than a configuration's name, and empty ones, are values. Raises EntryError for a key that
    occurs twice.
    """
    seen: set[str] = set()
    for part, value in table.items():
        key = before + part
        inner = [(key, value)]
        if isinstance(value, dict) and value and dots:
            inner = list(_flat(value, f"{key}.", dots - 1))
        for name, its in inner:
            if name in seen:
                raise EntryError(f"{name} is set twice; remove one", name)
            seen.add(name)
            yield name, its


def _check_key(key: str) -> None:
    if key not in _KNOWN_KEYS:
        close = get_close_matches(key.lower(), _KNOWN_KEYS, n=1)
        advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(_KNOWN_KEYS)}"
        raise EntryError(f"unknown key {shown(key)}; {advice}", key)


def _resource(values: Mapping[str, object]) -> Resource:
    if BROKER_KEY in values and TOPIC_KEY in values:
        raise EntryError(f"{BROKER_KEY} and {TOPIC_KEY} exclude each other; write two entries", TOPIC_KEY)
    if BROKER_KEY in values:
        return Resource(ResourceType.BROKER, _node_id(values[BROKER_KEY]))
    if TOPIC_KEY in values:
        return Resource(ResourceType.TOPIC, _topic(values[TOPIC_KEY]))
    raise EntryError(f'does not say whom it is for; add {BROKER_KEY} (a node id, or "<default>") or topic')


def _node_id(written: object) -> str:
    """Return the name of a broker's resource. Raises EntryError."""
    if written == DEFAULT_MARKER:
        return ""
    if isinstance(written, bool) or not isinstance(written, int) or not 0 <= written <= NODE_ID_MAX:
        raise EntryError(
            f'{BROKER_KEY} must be a node id such as 1, or "{DEFAULT_MARKER}", not {shown(written)}',
            BROKER_KEY,
        )
    return str(written)


def _topic(written: object) -> str:
    """Return the name of a topic's resource. Raises EntryError."""
    if not isinstance(written, str):
        raise EntryError(f"topic must be a string, not {shown(written)}; put it in quotes", TOPIC_KEY)
    if not written or written == DEFAULT_MARKER:
        fault = "is empty; give one" if not written else "has no default; write an entry for each topic"
        raise EntryError(f"topic {fault}", TOPIC_KEY)
    return written


def _value(key: str, written: object) -> str:
    """Return a throttle in Kafka's form. Raises EntryError."""
    return _rate(key, written) if key in RATE_KEYS else _replicas(key, written)


def _replicas(key: str, written: object) -> str:
    if not isinstance(written, str):
        raise EntryError(f"{key} must be a string, not {shown(written)}; put it in quotes", key)
    try:
        Replicas.parse(written)
    except ValueError as error:
        raise EntryError(f"{key} {error}, not {shown(written)}", key) from None
    return written


def _rate(key: str, written: object) -> str:
    """Return a rate in bytes/s as Kafka writes it. A text that Kafka reads stays unchanged. Raises
    EntryError.
    """
    rate = written
    if written == UNLIMITED:
        return str(RATE_MAX)
    if isinstance(written, str):
        if _is_rate(written):
            return written
        try:
            rate = units.parse(written, "bytes")
        except ValueError as error:
            raise EntryError(f"{key} must be {error}, not {shown(written)}", key) from None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or rate != rate // 1:
        raise EntryError(f"{key} must be {_RATE}, not {shown(written)}", key)
    if not 0 <= rate <= RATE_MAX:
        bound = "at least 0" if rate < 0 else f"at most {RATE_MAX}"
        raise EntryError(f"{key} must be {bound}, not {shown(written)}; remove it to lift the limit", key)
    return str(int(rate))


def _is_rate(text: str) -> bool:
    try:
        parse_rate(text)
    except ValueError:
        return False
    return True


def _kind(resource: Resource) -> str:
    return BROKER_KEY if resource.kind is ResourceType.BROKER else TOPIC_KEY


def _written_name(resource: Resource) -> str:
    """Return the name of a resource as a value of TOML. Raises QuotaFileError if the format cannot represent
    it.
    """
    kind, name = resource
    if kind is ResourceType.BROKER:
        if not name:
            return quoted(DEFAULT_MARKER)
        if not name.isascii() or not name.isdigit() or str(int(name)) != name or int(name) > NODE_ID_MAX:
            raise QuotaFileError(f"broker {shown(name)} is no node id; remove it")
        return name
    if name in ("", DEFAULT_MARKER) or any("\ud800" <= char <= "\udfff" for char in name):
        raise QuotaFileError(f"a topic cannot be called {name!a}; remove it")
    return quoted(name)


def _either(names: Iterable[str]) -> str:
    return " or ".join(names)
