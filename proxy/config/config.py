"""Configuration: defaults, overridden by a TOML file, overridden by command-line options.

Every key of the file is an option of `weir run` with the same name; keys are not in tables. A mistake in
either is one line: `ConfigError`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, get_args

import msgspec

from proxy.addresses import Address, AdvertisedListeners, PortRange
from proxy.config.config_error import ConfigError as ConfigError
from proxy.config.connection_rules import ConnectionRules, connection_rules
from proxy.config.credentials import Credentials, credentials_of
from proxy.config.principals import broker_principals, parse_principals
from proxy.config.request_costs import RequestTimeRules, request_time_rules
from proxy.config.settings import FILES
from proxy.config.settings import Settings as Settings
from proxy.config.usage_rules import UsageRules, usage_rules
from proxy.handlers.sasl.identity import IdentityRules, identity_rules
from proxy.net.tls.rules import TlsRules, tls_rules

BROKER_PORTS = 100
"""Number of ports for brokers if --broker-ports is not set."""

_ONCE_IN_TABLES: Final = {
    "quotas": "quota",
    "quotas.file": "quotas",
    "quotas.controller": "controller_quota",
    "brokers": "upstream",
    "connections.max_creation_rate": "max_connection_creation_rate",
    "connections.listener_max_creation_rate": "listener_max_connection_creation_rate",
    "connections.max_per_ip": "max_connections_per_ip",
    "connections.max_per_ip_overrides": "max_connections_per_ip_overrides",
}
"""Earlier releases had keys in tables. By table: the prefix of its keys today, if it is not the table's name.
By key in a table: the key today. Used only to say how to write a key now.
"""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Checked settings, in the types that the proxy uses."""

    settings: Settings
    upstream: tuple[Address, ...]
    listen: Address
    ports: PortRange
    quota_file: Path | None
    admins: frozenset[str]
    """Principals that may describe and alter quotas."""
    admin: Address | None
    connections: ConnectionRules
    brokers: frozenset[str]
    """Principals that fetch as replicas."""
    credentials: Credentials | None
    """Credentials of Weir's own connections to brokers."""
    tls: TlsRules

    @property
    def advertised_listeners(self) -> AdvertisedListeners:
        """Listeners for brokers: a port each, or `listen` itself if clients send server names."""
        names = self.tls.listener.names if self.tls.listener is not None else None
        return names or self.ports

    identity: IdentityRules
    request_time: RequestTimeRules
    usage: UsageRules | None
    """None if usage is not recorded."""

    @property
    def own_topics(self) -> frozenset[str]:
        """Topics of the cluster that only Weir writes to."""
        quotas = {self.settings.quota_topic} if self.settings.quota_store == "topic" else set()
        return frozenset(quotas) if self.usage is None else self.usage.topics | quotas


def load(path: Path | None, options: Mapping[str, object]) -> Config:
    """Read the configuration file, if any, and override it by the given options (None: not given). Raises
    ConfigError.
    """
    given = {key: value for key, value in options.items() if value is not None}
    written = _read_settings(path) if path is not None else {}
    return _check(msgspec.convert({**written, **given}, Settings))


def _read_settings(path: Path) -> dict[str, object]:
    """Read the settings in a file; paths are relative to it. Raises ConfigError."""
    settings = _read(path)
    for key, value in settings.items():
        _check_written(f"{path}: ", key, value)
    for key in FILES:
        if settings.get(key):
            settings[key] = str(path.parent / str(settings[key]))
    return settings


def _check_written(where: str, key: str, value: object) -> None:
    """Raise ConfigError if the key does not exist, or cannot have this value."""
    if isinstance(value, dict):
        renamed = ", ".join(_outside(key, value))
        advice = f"write {renamed}" if renamed else f"leave out [{key}]"
        raise ConfigError(f"{where}keys must not stand in tables: {advice}")
    if key not in _FIELDS:
        close = get_close_matches(key, _FIELDS, n=1)
        advice = f"did you mean {close[0]}?" if close else "docs/configuration.md lists the keys"
        raise ConfigError(f"{where}unknown key {key}: {advice}")
    try:
        msgspec.convert(value, _FIELDS[key].type)
    except msgspec.ValidationError:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        raise ConfigError(f"{where}{key} is {shown}, must be {_wanted(_FIELDS[key].type)}") from None


def _outside(table: str, inside: Mapping[str, object]) -> Iterator[str]:
    """Yield "table.name as key" for every key in a table or in tables within it."""
    for name, value in inside.items():
        place = f"{table}.{name}"
        if isinstance(value, dict):
            yield from _outside(place, value)
        else:
            spellings = (_ONCE_IN_TABLES.get(place), f"{_ONCE_IN_TABLES.get(table, table)}_{name}", name)
            yield from [f"{place} as {key}" for key in spellings if key in _FIELDS][:1]


def _wanted(kind: object) -> str:
    origin = get_args(kind)[0]  # every type is annotated with its description
    if origin is str:
        return "text in quotes"
    names = {int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(origin) or f"one of {', '.join(get_args(origin))}"


_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Settings)}


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the configuration: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _check(settings: Settings) -> Config:
    for name in ("connections_max", "frame_bytes_max", "in_flight_max", "connect_timeout_s", "refresh_s"):
        if not getattr(settings, name) > 0:  # False for NaN
            raise ConfigError(f"{name} is {getattr(settings, name)}, must be greater than 0")
    for name in ("throttle_ms_max", "first_request_hold_ms_max"):
        if not 0 <= getattr(settings, name) < 2**31:
            raise ConfigError(f"{name} is {getattr(settings, name)}, must be from 0 to 2147483647 ms")
    if not (settings.drain_timeout_s >= 0 and settings.first_node_id >= 0):
        raise ConfigError("drain_timeout_s and first_node_id must not be negative")
    if not (settings.quota_window_num >= 2 and settings.quota_window_size_seconds >= 1):
        raise ConfigError("quota_window_num must be at least 2, quota_window_size_seconds at least 1")
    for name in ("controller_quota_samples", "controller_quota_window_seconds"):
        if not getattr(settings, name) >= 1:
            raise ConfigError(f"{name} is {getattr(settings, name)}, must be at least 1")
    texts = [text.strip() for text in settings.upstream.split(",")]
    addresses = tuple(parse_address(text, "upstream") for text in texts if text)
    if not addresses:
        raise ConfigError("no upstream: say where Kafka is with --upstream HOST:PORT")
    listen = parse_address(settings.listen, "listen", host_needed=False)
    ports = _parse_ports(settings, listen)
    return Config(
        settings=settings,
        upstream=addresses,
        listen=listen,
        ports=ports,
        quota_file=Path(settings.quotas) if settings.quotas else None,
        admins=parse_principals(settings.admins, "admins"),
        admin=_parse_admin(settings.admin, listen, ports),
        connections=connection_rules(settings),
        brokers=broker_principals(settings),
        credentials=credentials_of(settings),
        tls=tls_rules(settings, listen),
        identity=identity_rules(settings),
        request_time=request_time_rules(settings),
        usage=usage_rules(settings),
    )


_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]*)):(?P<port>\d{1,5})")


def parse_address(text: str, key: str, *, host_needed: bool = True) -> Address:
    """Parse HOST:PORT or [IPV6]:PORT. Raises ConfigError naming `key`."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"]) if match else 0
    host = (match["v6"] or match["host"]) if match else ""
    if match and not 0 < port <= 65535:
        raise ConfigError(f"{key} is {text!r}, its port must be 1 to 65535")
    if match is None or (host_needed and not host):
        raise ConfigError(f"{key} is {text!r}, must be HOST:PORT, for example kafka-1:9092 or [::1]:9092")
    return Address(host, port)


def _parse_ports(settings: Settings, listen: Address) -> PortRange:
    text = settings.broker_ports
    if settings.sni_domain:
        return PortRange(
            listen.port, listen.port, settings.first_node_id
        )  # see `Config.advertised_listeners`
    if not text:
        first = listen.port + 1
        if first > 65535:
            raise ConfigError("no broker_ports above listen's 65535: set --broker-ports FIRST-LAST")
        return PortRange(first, min(first + BROKER_PORTS - 1, 65535), settings.first_node_id)
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < first <= last <= 65535:
        raise ConfigError(f"broker_ports is {text!r}, must be FIRST-LAST, for example 19093-19192")
    if first <= listen.port <= last:
        raise ConfigError(
            f"broker_ports {text} contains the port of listen ({listen.port}): choose ports beside it"
        )
    return PortRange(first, last, settings.first_node_id)


def _parse_admin(text: str, listen: Address, ports: PortRange) -> Address | None:
    if not text:
        return None
    admin = parse_address(text, "admin", host_needed=False)
    if admin.port == listen.port or ports.first <= admin.port <= ports.last:
        raise ConfigError(
            f"the port of admin ({admin.port}) belongs to listen ({listen.port}) or to broker_ports "
            f"({ports.first}-{ports.last}): choose one beside them"
        )
    return admin
