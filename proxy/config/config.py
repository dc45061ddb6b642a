"""Configuration: defaults, overridden by a TOML file, overridden by command-line options.

Every key of the file is an option of `weir run` with the same name; keys are not in tables. A mistake in the
file or in an option raises `ConfigError`, whose text is one line.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple, get_args

import msgspec

from weir.proxy.addresses import Address, AdvertisedListeners
from weir.proxy.config.addresses import parse_address as parse_address
from weir.proxy.config.admin_access import AdminAccess, admin_access, read_secret
from weir.proxy.config.ports import broker_ports
from weir.proxy.config.principals import Credentials, credentials_of, parse_principals
from weir.proxy.config.replication import ReplicationRules, replication_rules
from weir.proxy.config.request_costs import RequestTimeRules, request_time_rules
from weir.proxy.config.settings import (
    FILES,
    IN_TOPIC,
    KEY_PAIRS,
    OF_TRACES,
    QUOTA_TOPIC,
    SYSTEM,
    store_of,
)
from weir.proxy.config.settings import ConfigError as ConfigError
from weir.proxy.config.settings import ConfigMistakesError as ConfigMistakesError
from weir.proxy.config.settings import Settings as Settings
from weir.proxy.config.stores import check_store, check_topics
from weir.proxy.files import read_text
from weir.proxy.handlers.sasl.identity import IdentityRules, identity_rules
from weir.proxy.net.proxy_protocol.rules import Networks, proxy_networks
from weir.proxy.net.tls.contexts import ContextOfFiles
from weir.proxy.net.tls.rules import TlsRules, listener_rules, upstream_rules
from weir.proxy.port_ranges import PortRanges
from weir.quotas.sharing.report import ReportKey
from weir.quotas.units import parse, unit_of

FILE_BYTES_MAX: Final = 1024 * 1024
"""Maximum size (bytes) of the configuration file."""
NUMBER_MAX: Final = 2**63 - 1
"""Maximum of every number: Kafka's largest. Arithmetic with floats fails above 10^308."""


CONNECT_TIMEOUT_S: Final = 10.0
"""Time (s) to connect to a broker: as long as clients wait (socket.connection.setup.timeout.ms)."""


class ConnectionsPerIp(NamedTuple):
    """Maximum number of connections of an IP address, 0 for no limit; and other maxima by address."""

    most: int
    exceptions: dict[str, int]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Checked settings. Beside the settings as written, it has those that the proxy uses in another type,
    such as addresses.
    """

    settings: Settings
    upstream: tuple[Address, ...]
    listen: Address
    ports: PortRanges
    quota_file: Path | None
    admins: frozenset[str]
    """Names of the principals that may describe and alter quotas."""
    admin: Address | None
    admin_access: AdminAccess
    proxies: Networks
    """Networks of the load balancers whose PROXY headers are believed."""
    connections_per_ip: ConnectionsPerIp
    replication: ReplicationRules
    credentials: Credentials | None
    """Credentials of Weir's own connections to brokers; None if Weir does not authenticate."""
    share_key: ReportKey | None
    """Key that signs reports of usage; None for none."""
    tls: TlsRules
    identity: IdentityRules
    request_time: RequestTimeRules
    file: Path | None = None
    """The configuration file; None if the configuration consists of options only."""
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    own_client_id: str = msgspec.field(default_factory=lambda: f"weir-{token_hex(16)}")
    """Client-id, which no other process knows, of the requests by which Weir finds out if an address of a
    broker leads back to Weir.
    """

    @property
    def advertised_listeners(self) -> AdvertisedListeners:
        """Rule that gives each broker its listener in responses to clients: a port for each broker, or, if
        clients send server names (TLS), a server name for each broker on the one port of `listen`.
        """
        names = self.tls.listener.names if self.tls.listener is not None else None
        return names or self.ports

    @property
    def name(self) -> str:
        """Name of this Weir among others: the host's name, and the port of `listen`."""
        return f"{socket.gethostname()}:{self.listen.port}"

    @property
    def tls_files(self) -> tuple[ContextOfFiles, ...]:
        """All files of TLS: of the listeners, of connections to brokers, of the admin endpoint."""
        own = self.admin_access.tls
        return (*self.tls.files, *([] if own is None else [own]))

    @property
    def records_usage(self) -> bool:
        """True if the settings ask for usage records, in a directory or a topic."""
        return bool(self.settings.usage)

    @property
    def usage_topic(self) -> str:
        """Name of the topic for usage records; "" if they go to a directory, or nowhere."""
        usage = self.settings.usage
        return usage.removeprefix(IN_TOPIC) if usage.startswith(IN_TOPIC) else ""

    @property
    def quota_topic(self) -> str:
        """Name of the topic with the quotas; "" if they are elsewhere."""
        settings = self.settings
        name = settings.quotas.partition(":")[2]
        return (name or QUOTA_TOPIC) if settings.quota_store == "topic" else ""

    @property
    def own_topics(self) -> frozenset[str]:
        """Names of the cluster's topics in which Weir stores quotas, usage records, events and shared usage.
        Only Weir is to write to these topics.
        """
        settings = self.settings
        quotas = {self.quota_topic} - {""}
        usage = {self.usage_topic, self.usage_topic + OF_TRACES} if self.usage_topic else set()
        others = {settings.events_topic, settings.usage_share_topic} - {""}
        return frozenset(quotas | usage | others)


class Draft(NamedTuple):
    """Settings as read from file and options: each value is valid by itself, but checks that compare settings
    are still to come.
    """

    settings: Settings
    in_file: frozenset[str]
    """Keys that the configuration file sets."""
    mistakes: list[str]
    """Lines about unknown keys, and about values that a key cannot have. `settings` has the default for such
    a key.
    """


def load(path: Path | None, options: Mapping[str, object]) -> Config:
    """Read the configuration file, if any; override its settings by the options; check the result and return
    it. An option whose value is None was not given. Raises ConfigError: ConfigMistakesError, unless the file
    cannot be read.
    """
    draft = read(path, options)
    if not draft.mistakes:
        try:
            return msgspec.structs.replace(checked(draft.settings), file=path)
        except ConfigError:
            pass
    raise ConfigMistakesError(all_mistakes(draft))


def read(path: Path | None, options: Mapping[str, object]) -> Draft:
    """Return the settings of the configuration file, if any, overridden by the options. An option whose value
    is None was not given. Paths in the file that are relative are taken relative to the file's directory.
    Raises ConfigError if the file cannot be read.
    """
    mistakes: list[str] = []
    given = _usable("", {key: value for key, value in options.items() if value is not None}, mistakes)
    written = _usable(f"{path}: ", _read(path), mistakes) if path is not None else {}
    if path is not None:
        written |= {key: _beside(path, key, str(written[key])) for key in FILES if written.get(key)}
    return Draft(msgspec.convert({**written, **given}, Settings), frozenset(written), mistakes)


def _beside(file: Path, key: str, value: str) -> str:
    """Return the paths in a value of the configuration file `file`, relative to its directory."""
    if _is_word(key, value):
        return value
    paths = value.split(",", 1) if key in KEY_PAIRS else [value]
    found = ",".join(str(file.parent / path.strip()) for path in paths)
    # Path drops `./`, by which the file `./topic` differs from the topic.
    return f"./{found}" if _is_word(key, found) else found


def _is_word(key: str, value: str) -> bool:
    """Return True if a value of a key in `FILES` is no path."""
    return (
        (key == "upstream_tls" and value == SYSTEM)
        or (key == "usage" and value.partition(":")[0] == "topic")
        or (key == "quotas" and store_of(value) != "file")
    )


def all_mistakes(draft: Draft) -> list[str]:
    """Return every mistake in the settings, each as one line. If a key has an invalid value, leave out
    further mistakes whose text names this key, because they may be consequences.
    """
    found = []
    for check in _CHECKS:
        try:
            check(draft.settings)
        except ConfigError as error:
            found.append(str(error))
    mentioned = _keys_in("\n".join(draft.mistakes))
    return [*draft.mistakes, *(text for text in dict.fromkeys(found) if not _keys_in(text) & mentioned)]


def _keys_in(text: str) -> set[str]:
    return set(re.findall(r"\w+", text)) & _FIELDS.keys()


def _usable(where: str, values: Mapping[str, object], mistakes: list[str]) -> dict[str, object]:
    """Return the settings with a known key and a valid value; add a line to `mistakes` for each of the
    others.
    """
    usable = {}
    for key, value in values.items():
        try:
            usable[key] = _checked(where, key, value)
        except ConfigError as error:
            mistakes.append(str(error))
    return usable


def _checked(where: str, key: str, value: object) -> object:
    """Return the value of a key as written; a text such as "30s" as a number in the key's unit. Raises
    ConfigError, whose text begins with `where`, if the key does not exist or cannot have this value.
    """
    if isinstance(value, dict):
        flat = [f"{key}.{inner} as {key}_{inner}" for inner in value if f"{key}_{inner}" in _FIELDS]
        advice = f"write {', '.join(flat)}" if flat else f"leave out [{key}]"
        raise ConfigError(f"{where}keys must not stand in tables: {advice}")
    if key not in _FIELDS:
        close = get_close_matches(key, _FIELDS, n=1)
        advice = f"did you mean {close[0]}?" if close else "weir config --new --all lists the keys"
        raise ConfigError(f"{where}unknown key {key}: {advice}")
    if key == "max_connections_per_ip" and type(value) is int:
        value = str(value)
    if key == "workers" and isinstance(value, str):
        value = 0 if value == "auto" else int(value) if value.isdecimal() else value
    unit = unit_of(key)
    if unit is not None and isinstance(value, str):
        try:
            value = parse(value, unit)
        except ValueError as error:
            raise ConfigError(f"{where}{key} is {value!r}, must be {error}") from None
    try:
        msgspec.convert(value, _FIELDS[key].type)
    except msgspec.ValidationError:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        wanted = _wanted(_FIELDS[key].type, value) + (' or "auto"' if key == "workers" else "")
        raise ConfigError(f"{where}{key} is {shown}, must be {wanted}") from None
    if isinstance(value, int | float) and value > NUMBER_MAX:
        raise ConfigError(f"{where}{key} is too large, must be at most {NUMBER_MAX}")
    return value


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
        return tomllib.loads(read_text(path, FILE_BYTES_MAX, pipes=True))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the configuration: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also for numbers of 5000 digits, and deep nesting
        raise ConfigError(f"{path}: not TOML: {error}") from None


def checked(settings: Settings) -> Config:
    """Return the checked settings. Raises ConfigError for the first mistake."""
    _check_sharing(settings)
    check_store(settings)
    check_topics(settings)
    listen = _listen(settings)
    ports = _ports(settings)
    return Config(
        settings=settings,
        upstream=_upstream(settings),
        listen=listen,
        ports=ports,
        quota_file=Path(settings.quotas) if settings.quotas and settings.quota_store == "file" else None,
        admins=_admins(settings),
        admin=_admin(settings),
        admin_access=_admin_access(settings),
        proxies=proxy_networks(settings),
        connections_per_ip=_connections_per_ip(settings),
        replication=_replication(settings),
        credentials=credentials_of(settings),
        share_key=share_key(settings),
        tls=TlsRules(listener_rules(settings, listen), upstream_rules(settings)),
        identity=identity_rules(settings),
        request_time=request_time_rules(settings),
    )


def _check_sharing(settings: Settings) -> None:
    if settings.share_key_file and not settings.usage_share_topic:
        raise ConfigError("share_key_file needs a topic: set usage_share_topic, for example to __weir_usage")


def share_key(settings: Settings) -> ReportKey | None:
    """Return the key that signs reports of usage, read from its file; None for none. Raises ConfigError."""
    path = settings.share_key_file
    return ReportKey(read_secret(Path(path), "share_key_file", "key")) if path else None


def _upstream(settings: Settings) -> tuple[Address, ...]:
    texts = [text.strip() for text in settings.upstream.split(",")]
    addresses = tuple(parse_address(text, "upstream") for text in texts if text)
    if not addresses:
        raise ConfigError("no upstream: say where Kafka is with --upstream HOST:PORT, or WEIR_UPSTREAM")
    return addresses


def _listen(settings: Settings) -> Address:
    return parse_address(settings.listen, "listen", host_needed=False)


def _admins(settings: Settings) -> frozenset[str]:
    return parse_principals(settings.quota_admins, "quota_admins")


def _ports(settings: Settings) -> PortRanges:
    return broker_ports(settings, _listen(settings))


def _admin(settings: Settings) -> Address | None:
    if not settings.admin:
        return None
    listen, ports = _listen(settings), _ports(settings)
    admin = parse_address(settings.admin, "admin", host_needed=False)
    if admin.port == listen.port or ports.has_port(admin.port):
        raise ConfigError(
            f"the port of admin ({admin.port}) belongs to listen ({listen.port}) or to broker_ports "
            f"({ports}): choose one beside them"
        )
    return admin


def _admin_access(settings: Settings) -> AdminAccess:
    return admin_access(settings, _admin(settings))


def _replication(settings: Settings) -> ReplicationRules:
    listen, ports, admin = _listen(settings), _ports(settings), _admin(settings)
    taken = [("listen", listen.port, listen.port)]
    taken += [("broker_ports", found.first, found.last) for found in ports.ranges]
    if admin is not None:
        taken.append(("admin", admin.port, admin.port))
    return replication_rules(settings, taken)


_OVERRIDE: Final = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:\[\]]+)):(?P<count>\d{1,9})", re.ASCII)


def _connections_per_ip(settings: Settings) -> ConnectionsPerIp:
    number, *texts = (text.strip() for text in settings.max_connections_per_ip.split(","))
    if not (number.isascii() and number.isdecimal()) or len(number) > 9:
        raise ConfigError(
            f"max_connections_per_ip begins with {number!r}, must be a number of connections, 0 for no limit"
        )
    return ConnectionsPerIp(int(number), dict(map(_override, texts)))


def _override(text: str) -> tuple[str, int]:
    match = _OVERRIDE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return plain_ip(match["v6"] or match["v4"]), int(match["count"])
    except ValueError:
        raise ConfigError(
            f"max_connections_per_ip has {text!r}, must be IP:NUMBER, for example 10.0.0.1:100 or [::1]:100"
        ) from None


def plain_ip(host: str) -> str:
    """Return an IP address in its usual spelling, without a zone; an IPv4 address mapped to IPv6 as IPv4.

    >>> plain_ip("::ffff:10.0.0.1"), plain_ip("FE80:0::1%eth0")
    ('10.0.0.1', 'fe80::1')
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


_CHECKS: Final[tuple[Callable[[Settings], object], ...]] = (
    _upstream,
    _listen,
    _ports,
    _admin,
    _admin_access,
    _admins,
    proxy_networks,
    _connections_per_ip,
    _check_sharing,
    check_store,
    check_topics,
    _replication,
    credentials_of,
    share_key,
    lambda settings: listener_rules(settings, _listen(settings)),
    upstream_rules,
    identity_rules,
    request_time_rules,
)
"""Functions that check some settings each, and raise ConfigError."""
