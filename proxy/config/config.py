"""Configuration: defaults, overridden by a TOML file, overridden by command-line options.

Every key of the file is an option of `weir run` with the same name; keys are not in tables. A mistake in the
file or in an option raises `ConfigError`, whose text is one line.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, get_args

import msgspec

from proxy.addresses import Address, AdvertisedListeners, PortRange
from proxy.config.principals import Credentials, broker_principals, credentials_of, parse_principals
from proxy.config.request_costs import RequestTimeRules, request_time_rules
from proxy.config.settings import FILES
from proxy.config.settings import ConfigError as ConfigError
from proxy.config.settings import Settings as Settings
from proxy.handlers.sasl.identity import IdentityRules, identity_rules
from proxy.net.tls.rules import TlsRules, tls_rules

BROKER_PORTS = 100
"""Number of ports for brokers if --broker-ports is not set."""

_ONCE_IN_TABLES: Final = {
    "quotas": "quota",
    "quotas.file": "quotas",
    "quotas.controller.samples": "controller_quota_window_num",
    "quotas.controller.window_seconds": "controller_quota_window_size_seconds",
    "brokers": "upstream",
    "connections.max_creation_rate": "max_connection_creation_rate",
    "connections.listener_max_creation_rate": "listener_max_connection_creation_rate",
    "connections.max_per_ip": "max_connections_per_ip",
    "connections.max_per_ip_overrides": "max_connections_per_ip_overrides",
}
"""Tables in which earlier releases had keys. For a table: the prefix of its keys today, if the prefix is not
the table's name. For a key in a table: the key today. Used only to tell operators how to write a key now.
"""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Checked settings. Beside the settings as written, it has those that the proxy uses in another type,
    such as addresses.
    """

    settings: Settings
    upstream: tuple[Address, ...]
    listen: Address
    ports: PortRange
    quota_file: Path | None
    admins: frozenset[str]
    """Names of the principals that may describe and alter quotas."""
    admin: Address | None
    connections_per_ip: dict[str, int]
    """Maximum number of connections by IP address, for addresses whose maximum is not
    `max_connections_per_ip`.
    """
    brokers: frozenset[str]
    """Names of the brokers' principals. Their fetches are exempt from quotas if they fetch as replicas."""
    credentials: Credentials | None
    """Credentials of Weir's own connections to brokers; None if Weir does not authenticate."""
    tls: TlsRules
    identity: IdentityRules
    request_time: RequestTimeRules
    file: Path | None = None
    """The configuration file; None if the configuration consists of options only."""

    @property
    def advertised_listeners(self) -> AdvertisedListeners:
        """Rule that gives each broker the listener that clients are told: a port for each broker, or, if
        clients send server names (TLS), a server name for each broker on the one port of `listen`.
        """
        names = self.tls.listener.names if self.tls.listener is not None else None
        return names or self.ports

    @property
    def records_usage(self) -> bool:
        """True if the settings ask for usage records, in a directory or a topic."""
        return bool(self.settings.usage_dir or self.settings.usage_topic)

    @property
    def own_topics(self) -> frozenset[str]:
        """Names of the cluster's topics in which Weir stores quotas and usage records. Only Weir is to write
        to these topics.
        """
        settings = self.settings
        quotas = {settings.quota_topic} if settings.quota_store == "topic" else set()
        usage = {settings.usage_topic, f"{settings.usage_topic}-trace"} if settings.usage_topic else set()
        return frozenset(quotas | usage)


def load(path: Path | None, options: Mapping[str, object]) -> Config:
    """Read the configuration file, if any; override its settings by the command-line options; check the
    result and return it. An option whose value is None was not given. Raises ConfigError.
    """
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        _check_written("", key, value)
    written = _read_settings(path) if path is not None else {}
    config = _check(msgspec.convert({**written, **given}, Settings))
    return msgspec.structs.replace(config, file=path)


def _read_settings(path: Path) -> dict[str, object]:
    """Return the settings in a configuration file. Paths in it that are relative are taken relative to the
    file's directory. Raises ConfigError.
    """
    settings = _read(path)
    for key, value in settings.items():
        _check_written(f"{path}: ", key, value)
    for key in FILES:
        if settings.get(key):
            settings[key] = str(path.parent / str(settings[key]))
    return settings


def _check_written(where: str, key: str, value: object) -> None:
    """Raise ConfigError if the key does not exist or cannot have this value. The error's text begins with
    `where`.
    """
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
        raise ConfigError(f"{where}{key} is {shown}, must be {_wanted(_FIELDS[key].type, value)}") from None


def _outside(table: str, inside: Mapping[str, object]) -> Iterator[str]:
    """Yield the text "table.name as key" for every old key in a table, and in the tables within that table;
    `key` is the key to write now.
    """
    for name, value in inside.items():
        place = f"{table}.{name}"
        if isinstance(value, dict):
            yield from _outside(place, value)
        else:
            spellings = (_ONCE_IN_TABLES.get(place), f"{_ONCE_IN_TABLES.get(table, table)}_{name}", name)
            yield from [f"{place} as {key}" for key in spellings if key in _FIELDS][:1]


def _wanted(kind: object, value: object) -> str:
    """Return a description of the values that a key accepts, for an error text: the type, or, if `value` has
    this type, the bounds.
    """
    origin, *metas = get_args(kind)
    try:
        msgspec.convert(value, origin)
    except msgspec.ValidationError:
        if origin is str:
            return "text in quotes"
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        return names.get(origin) or f"one of {', '.join(get_args(origin))}"
    bounds = metas[0]
    if bounds.gt is not None:
        return f"greater than {bounds.gt}"
    return f"at least {bounds.ge}" if bounds.le is None else f"{bounds.ge} to {bounds.le}"


_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Settings)}


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the configuration: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _check(settings: Settings) -> Config:
    if settings.usage_dir and settings.usage_topic:
        raise ConfigError("usage_dir and usage_topic are both set: leave out one of them")
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
        connections_per_ip=_connections_per_ip(settings),
        brokers=broker_principals(settings),
        credentials=credentials_of(settings),
        tls=tls_rules(settings, listen),
        identity=identity_rules(settings),
        request_time=request_time_rules(settings),
    )


_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]*)):(?P<port>\d{1,5})")


def parse_address(text: str, key: str, *, host_needed: bool = True) -> Address:
    """Return the address in HOST:PORT or [IPV6]:PORT. Raises ConfigError, whose text names `key`."""
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


_OVERRIDE: Final = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:\[\]]+)):(?P<count>\d{1,9})")


def _connections_per_ip(settings: Settings) -> dict[str, int]:
    texts = [text.strip() for text in settings.max_connections_per_ip_overrides.split(",")]
    return dict(_override(text) for text in texts if text)


def _override(text: str) -> tuple[str, int]:
    match = _OVERRIDE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return plain_ip(match["v6"] or match["v4"]), int(match["count"])
    except ValueError:
        raise ConfigError(
            f"max_connections_per_ip_overrides has {text!r}, must be IP:NUMBER, "
            "for example 10.0.0.1:100 or [::1]:100"
        ) from None


def plain_ip(host: str) -> str:
    """Return an IP address in its usual spelling, without a zone; an IPv4 address mapped to IPv6 as IPv4.

    >>> plain_ip("::ffff:10.0.0.1"), plain_ip("FE80:0::1%eth0")
    ('10.0.0.1', 'fe80::1')
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
