"""Configuration: a TOML file, options of the command line over it, defaults beneath.

Every key here is an option of `weir run` of the same name. A few may also be written in tables (`IN_TABLES`).
What is wrong with either is one line: `ConfigError`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from proxy.addresses import Address, Places, PortRange
from proxy.config_error import ConfigError as ConfigError
from proxy.connection_gate import ConnectionRules, connection_rules
from proxy.credentials import Credentials, credentials_of
from proxy.principals import broker_principals, parse_principals
from proxy.rules.identity import IdentityRules, identity_rules
from proxy.tls.rules import TlsRules, tls_rules
from quotas.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT

BROKER_PORTS = 100
"""How many ports brokers are given when --broker-ports does not say."""


def _key(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The keys of the configuration file, as written there; `weir run` makes its options from them."""

    upstream: Annotated[str, _key("Kafka's bootstrap brokers, HOST:PORT[,HOST:PORT...].")] = ""
    listen: Annotated[
        str, _key("Where clients bootstrap, HOST:PORT; an empty host is every interface, IPv4 and IPv6.")
    ] = "127.0.0.1:19092"
    quotas: Annotated[
        str, _key("Quota file (TOML), reloaded when it changes; in a configuration file, relative to it.")
    ] = ""
    advertised_host: Annotated[
        str, _key("The host that clients are told for every broker; empty: the address they connected to.")
    ] = ""
    broker_ports: Annotated[
        str,
        _key(
            "FIRST-LAST; the broker with the first node id listens at FIRST; empty: 100 ports after listen."
        ),
    ] = ""
    first_node_id: Annotated[int, _key("The smallest node id of the cluster.")] = 0
    admin: Annotated[str, _key("HOST:PORT of /metrics, /healthz and /readyz; empty: off.")] = ""
    throttle_mode: Annotated[
        Literal["mute", "hold"],
        _key("mute: answer, then do not read (KIP-219); hold: delay the answer, as brokers before 2.0."),
    ] = "mute"
    quota_window_num: Annotated[int, _key("Samples a rate is measured over (quota.window.num).")] = (
        NUM_SAMPLES_DEFAULT
    )
    quota_window_size_seconds: Annotated[int, _key("Seconds of each sample (quota.window.size.seconds).")] = (
        WINDOW_S_DEFAULT
    )
    controller_quota_samples: Annotated[
        int, _key("The burst of mutations is rate * samples * seconds (controller.quota.window.num).")
    ] = NUM_SAMPLES_DEFAULT
    controller_quota_window_seconds: Annotated[
        int, _key("Seconds of each sample (controller.quota.window.size.seconds).")
    ] = WINDOW_S_DEFAULT
    auto_creation: Annotated[
        Literal["permissive", "strict"],
        _key(
            "What an automatic topic creation over the mutation quota meets: permissive charges and mutes, "
            "strict takes the permission to create out of Metadata requests."
        ),
    ] = "permissive"
    uplift: Annotated[
        bool,
        _key("Offer clients newer versions than old brokers have, and translate, where nothing is lost."),
    ] = True
    admins: Annotated[
        str,
        _key(
            "Principals that may describe and alter quotas over Kafka's protocol, User:NAME[;User:NAME...]; "
            "empty: nobody."
        ),
    ] = ""
    quota_store: Annotated[
        Literal["file", "topic", "broker"],
        _key(
            "Where quotas live: file: the quota file; topic: a compacted topic of the cluster; "
            "broker: what the brokers themselves store."
        ),
    ] = "file"
    quota_topic: Annotated[str, _key("The topic of quota_store = topic; made if it is missing.")] = (
        "__weir_quotas"
    )
    quota_snapshot: Annotated[
        str,
        _key("File that keeps the last known quotas of a topic or broker store, for starts without it."),
    ] = ""
    quota_mode: Annotated[
        Literal["enforce", "shadow"],
        _key("shadow: compute, count and log what would be throttled, but delay and refuse nothing."),
    ] = "enforce"
    empty_client_id: Annotated[
        Literal["unlimited", "default"],
        _key(
            "Whether default client-id quotas apply to clients without a client-id; unlimited is Kafka's way."
        ),
    ] = "unlimited"
    sasl_oauthbearer_sub_claim_name: Annotated[
        str, _key("The claim of an OAUTHBEARER token that is the principal's name.")
    ] = "sub"
    gssapi_principal: Annotated[
        str, _key("The principal's name of GSSAPI sessions, whose own cannot be seen.")
    ] = "ANONYMOUS"
    delegation_token_principal: Annotated[
        str, _key("The principal's name of sessions with a delegation token of an unknown owner.")
    ] = "ANONYMOUS"  # noqa: S105  # a name
    super_users: Annotated[
        str, _key("The brokers' own principals, User:NAME[;User:NAME...]; see inter_broker.")
    ] = ""
    inter_broker: Annotated[
        bool,
        _key("Brokers reach each other through this Weir: what super_users fetch as replicas is exempt."),
    ] = False
    tls_cert: Annotated[
        str,
        _key("Certificate chain (PEM) of the listeners; with it they speak TLS. Reloaded when it changes."),
    ] = ""
    tls_key: Annotated[str, _key("Private key (PEM) of tls_cert; empty: it is in the same file.")] = ""
    tls_client_auth: Annotated[
        Literal["none", "requested", "required"],
        _key("Whether clients must show a certificate (ssl.client.auth)."),
    ] = "none"
    tls_client_ca: Annotated[str, _key("Certificates (PEM) that clients' certificates are checked with.")] = (
        ""
    )
    ssl_principal_mapping_rules: Annotated[
        str, _key("How a client certificate's subject becomes a principal's name, in Kafka's syntax.")
    ] = "DEFAULT"
    sni_domain: Annotated[
        str,
        _key(
            "Serve all brokers at the port of listen, as broker-ID.DOMAIN, told apart by TLS server names; "
            "empty: a port per broker."
        ),
    ] = ""
    upstream_tls: Annotated[bool, _key("Speak TLS with brokers.")] = False
    upstream_ca: Annotated[
        str, _key("Certificates (PEM) that brokers' are checked with; empty: the system's.")
    ] = ""
    upstream_cert: Annotated[str, _key("Certificate chain (PEM) that Weir shows to brokers.")] = ""
    upstream_key: Annotated[
        str, _key("Private key (PEM) of upstream_cert; empty: it is in the same file.")
    ] = ""
    upstream_verify_host: Annotated[
        bool,
        _key("Check that a broker's certificate names its host (ssl.endpoint.identification.algorithm)."),
    ] = True
    upstream_sasl_mechanism: Annotated[
        Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
        _key("How Weir's own connections to brokers authenticate; clients' do it themselves. Empty: not."),
    ] = ""
    upstream_sasl_username: Annotated[str, _key("The user of Weir's own connections to brokers.")] = ""
    upstream_sasl_password_file: Annotated[str, _key("File with that user's password, and nothing else.")] = (
        ""
    )
    max_connection_creation_rate: Annotated[
        int, _key("Connections per second that all listeners together accept (KIP-612); 0: no limit.")
    ] = 0
    listener_max_connection_creation_rate: Annotated[
        int, _key("Connections per second that each listener accepts; 0: no limit.")
    ] = 0
    max_connections_per_ip: Annotated[
        int, _key("Client connections from one IP address at a time; 0: no limit.")
    ] = 0
    max_connections_per_ip_overrides: Annotated[
        str, _key("Other numbers for some addresses, IP:NUMBER[,[IPV6]:NUMBER...].")
    ] = ""
    connections_max: Annotated[int, _key("Client connections at a time; each uses two descriptors.")] = 20_000
    frame_bytes_max: Annotated[int, _key("The largest request in bytes (socket.request.max.bytes).")] = (
        100 * 1024 * 1024
    )
    in_flight_max: Annotated[int, _key("Unanswered requests per connection; more wait in its socket.")] = 1000
    connect_timeout_s: Annotated[float, _key("Seconds to connect to a broker.")] = 10.0
    drain_timeout_s: Annotated[float, _key("Seconds that requests under way have left at SIGTERM.")] = 10.0
    refresh_s: Annotated[float, _key("Seconds between questions for the cluster's brokers.")] = 30.0
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _key("Least level to log.")] = "info"
    log_format: Annotated[
        Literal["auto", "console", "json"], _key("auto: console on a terminal, else JSON lines.")
    ] = "auto"


IN_TABLES: Final = {
    "quotas.file": "quotas",
    "quotas.mode": "quota_mode",
    "quotas.store": "quota_store",
    "quotas.topic": "quota_topic",
    "quotas.snapshot": "quota_snapshot",
    "quotas.admins": "admins",
    "quotas.empty_client_id": "empty_client_id",
    "quotas.controller.samples": "controller_quota_samples",
    "quotas.controller.window_seconds": "controller_quota_window_seconds",
    "identity.sasl_oauthbearer_sub_claim_name": "sasl_oauthbearer_sub_claim_name",
    "identity.gssapi_principal": "gssapi_principal",
    "identity.delegation_token_principal": "delegation_token_principal",
    "identity.ssl_principal_mapping_rules": "ssl_principal_mapping_rules",
    "identity.super_users": "super_users",
    "identity.inter_broker": "inter_broker",
    "tls.cert": "tls_cert",
    "tls.key": "tls_key",
    "tls.client_auth": "tls_client_auth",
    "tls.client_ca": "tls_client_ca",
    "tls.sni_domain": "sni_domain",
    "brokers.tls": "upstream_tls",
    "brokers.ca": "upstream_ca",
    "brokers.cert": "upstream_cert",
    "brokers.key": "upstream_key",
    "brokers.verify_host": "upstream_verify_host",
    "brokers.sasl_mechanism": "upstream_sasl_mechanism",
    "brokers.sasl_username": "upstream_sasl_username",
    "brokers.sasl_password_file": "upstream_sasl_password_file",
    "connections.max": "connections_max",
    "connections.max_creation_rate": "max_connection_creation_rate",
    "connections.listener_max_creation_rate": "listener_max_connection_creation_rate",
    "connections.max_per_ip": "max_connections_per_ip",
    "connections.max_per_ip_overrides": "max_connections_per_ip_overrides",
}
"""Where keys may stand as well: in tables of the configuration file, such as `[quotas]` and `[tls]`."""

FILES: Final = (
    "quotas",
    "quota_snapshot",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "upstream_ca",
    "upstream_cert",
    "upstream_key",
    "upstream_sasl_password_file",
)
"""Keys whose values are paths: relative to the configuration file that they stand in."""

_TABLES: Final = frozenset(place.rpartition(".")[0] for place in IN_TABLES)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, checked and in the types that the proxy uses."""

    settings: Settings
    upstream: tuple[Address, ...]
    listen: Address
    ports: PortRange
    quota_file: Path | None
    admins: frozenset[str]
    """Names of principals that may describe and alter quotas."""
    admin: Address | None
    connections: ConnectionRules
    brokers: frozenset[str]
    """The principals that fetch as replicas."""
    credentials: Credentials | None
    """Of Weir's own connections to brokers."""
    tls: TlsRules

    @property
    def places(self) -> Places:
        """Where brokers are placed: a port each, or at listen's if clients name them."""
        names = self.tls.listener.names if self.tls.listener is not None else None
        return names or self.ports
    identity: IdentityRules


def load(path: Path | None, options: Mapping[str, object]) -> Config:
    """Read the configuration file, if any, and put the given options (None: not given) over it. Raises
    ConfigError.
    """
    given = {key: value for key, value in options.items() if value is not None}
    written = _read_settings(path) if path is not None else {}
    return _check(msgspec.convert({**written, **given}, Settings))


def _read_settings(path: Path) -> dict[str, object]:
    """Read the settings in a file, paths in it relative to it. Raises ConfigError."""
    settings: dict[str, object] = {}
    places: dict[str, str] = {}
    for place, value in _places(_read(path)):
        key = IN_TABLES.get(place, place)
        _check_written(f"{path}: ", place, key, value)
        if key in settings:
            raise ConfigError(f"{path}: {place} is {places[key]} once more: leave out one of them")
        settings[key], places[key] = value, place
    for key in FILES:
        if settings.get(key):
            settings[key] = str(path.parent / str(settings[key]))
    return settings


def _places(written: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield what is written, and where; within tables that keys may stand in, as table.key."""
    for place, value in written.items():
        if place in _TABLES and isinstance(value, dict):
            yield from _places({f"{place}.{key}": inner for key, inner in value.items()})
        else:
            yield place, value


def _check_written(where: str, place: str, key: str, value: object) -> None:
    """Raises ConfigError if there is no such key, or if it cannot have this value."""
    if key not in _FIELDS:
        raise ConfigError(f"{where}unknown key {place}: {_advice(place, value)}")
    try:
        msgspec.convert(value, _FIELDS[key].type)
    except msgspec.ValidationError:
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        raise ConfigError(f"{where}{place} is {shown}, must be {_wanted(_FIELDS[key].type)}") from None


def _advice(place: str, value: object) -> str:
    """What may have been meant by an unknown key."""
    table, _, name = place.rpartition(".")
    if table and name in _FIELDS:
        inside = [other for other, key in IN_TABLES.items() if key == name]
        return f"did you mean {inside[0]}?" if inside else f"{name} stands above the tables"
    tables = _TABLES if isinstance(value, dict) else ()
    close = get_close_matches(place, [*_FIELDS, *IN_TABLES, *tables], n=1)
    return f"did you mean {close[0]}?" if close else "docs/configuration.md lists the keys"


def _wanted(kind: object) -> str:
    origin = get_args(kind)[0]  # every type is annotated with its description
    if origin is str:
        return "text in quotes"
    names = {int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(origin) or f"one of {', '.join(get_args(origin))}"


_FIELDS: Final = {field.name: field for field in msgspec.structs.fields(Settings)}


def _read(path: Path) -> dict[str, object]:
    text = ""
    try:
        text = path.read_text("utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the configuration: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        advice = "; if `quotas` is a table, the file is `file` in it" if _quotas_is_both(text) else ""
        raise ConfigError(f"{path}: not TOML: {error}{advice}") from None


def _quotas_is_both(text: str) -> bool:
    """Whether a file that is not TOML says quotas = "..." and has the table, too."""
    is_file = re.search(r"^\s*quotas\s*=\s*[\"']", text, re.MULTILINE)
    return bool(is_file and re.search(r"^\s*(\[\s*quotas\b|quotas\s*\.)", text, re.MULTILINE))


def _check(settings: Settings) -> Config:
    for name in ("connections_max", "frame_bytes_max", "in_flight_max", "connect_timeout_s", "refresh_s"):
        if not getattr(settings, name) > 0:  # NaN is not
            raise ConfigError(f"{name} is {getattr(settings, name)}, must be greater than 0")
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
    )


_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]*)):(?P<port>\d{1,5})")


def parse_address(text: str, key: str, *, host_needed: bool = True) -> Address:
    """Parse HOST:PORT or [IPV6]:PORT. Raises ConfigError naming `key`."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"]) if match else 0
    host = (match["v6"] or match["host"]) if match else ""
    if match is None or not 0 < port <= 65535 or (host_needed and not host):
        raise ConfigError(f"{key} is {text!r}, must be HOST:PORT, for example kafka-1:9092 or [::1]:9092")
    return Address(host, port)


def _parse_ports(settings: Settings, listen: Address) -> PortRange:
    text = settings.broker_ports
    if settings.sni_domain:
        return PortRange(listen.port, listen.port, settings.first_node_id)  # see `Config.places`
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
