"""The TLS settings, checked; the files are read later, when needed."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weir.proxy.addresses import ServerNames
from weir.proxy.config.settings import SYSTEM, ConfigError
from weir.proxy.net.tls.contexts import ContextOfFiles, KeyPair, client_context, server_context
from weir.proxy.net.tls.principal_mapping import PrincipalMapping

if TYPE_CHECKING:
    from weir.proxy.addresses import Address
    from weir.proxy.config.settings import Settings

VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
DOMAIN: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TlsRules:
    """The checked TLS settings for clients (`listener`) and for brokers (`upstream`); None for a side without
    TLS.
    """

    listener: ListenerRules | None
    upstream: ContextOfFiles | None

    @property
    def files(self) -> list[ContextOfFiles]:
        """Contexts of both sides that are made of files; a side without TLS has none."""
        sides = (self.listener.files if self.listener is not None else None, self.upstream)
        return [files for files in sides if files is not None]


@dataclass(frozen=True, slots=True)
class ListenerRules:
    """The checked TLS settings for clients."""

    files: ContextOfFiles
    mapping: PrincipalMapping
    names: ServerNames | None
    """Names by which clients tell brokers apart on one shared port; None for a port per broker."""


def listener_rules(settings: Settings, listen: Address) -> ListenerRules | None:
    """Return the checked TLS settings for clients; None if listeners speak no TLS. Raises ConfigError."""
    mapping = PrincipalMapping.parse(settings.ssl_principal_mapping_rules)
    pair = pair_of(settings.tls_cert, "tls_cert")
    ca = Path(settings.tls_client_ca) if settings.tls_client_ca else None
    if pair is None:
        for key in ("tls_client_ca", "sni_domain"):
            if getattr(settings, key):
                raise ConfigError(f"{key} is set, but listeners speak TLS only with tls_cert: set that too")
        if settings.tls_client_auth != "none":
            raise ConfigError(
                "tls_client_auth is set, but listeners speak TLS only with tls_cert: set that too"
            )
        return None
    if (settings.tls_client_auth != "none") != (ca is not None):
        raise ConfigError(
            "tls_client_auth requested or required goes with tls_client_ca, the authority of clients' "
            "certificates: set both or neither"
        )
    verify = VERIFY[settings.tls_client_auth]
    paths = [*dict.fromkeys([pair.cert, pair.key]), *([ca] if ca else [])]
    names = _names(settings, listen)
    files = ContextOfFiles(
        "tls_cert",
        paths,
        lambda at: server_context(pair.read_at(at), verify, ca and at(ca), by_name=names is not None),
        pair.cert,
    )
    return ListenerRules(files, mapping, names)


def upstream_rules(settings: Settings) -> ContextOfFiles | None:
    """Return the context for connections to brokers; None if brokers are spoken to without TLS. Raises
    ConfigError.
    """
    if not settings.upstream_tls:
        if settings.upstream_cert:
            raise ConfigError(
                "upstream_cert is set, but brokers are spoken to in TLS only with upstream_tls: set that"
            )
        return None
    pair = pair_of(settings.upstream_cert, "upstream_cert")
    ca = Path(settings.upstream_tls) if settings.upstream_tls != SYSTEM else None
    verify_host = settings.upstream_verify_host
    paths = [*dict.fromkeys([pair.cert, pair.key] if pair else []), *([ca] if ca else [])]
    return ContextOfFiles(
        "upstream_tls",
        paths,
        lambda at: client_context(ca and at(ca), pair and pair.read_at(at), verify_host=verify_host),
        pair.cert if pair else None,
    )


def pair_of(files: str, name: str) -> KeyPair | None:
    """Return the certificate and the key in CERTIFICATE[,KEY], the value of the setting `name`; None if it is
    empty. Raises ConfigError.
    """
    cert, _comma, key = (part.strip() for part in files.partition(","))
    if key and not cert:
        raise ConfigError(f"{name} is {files!r}, must be CERTIFICATE or CERTIFICATE,KEY")
    return KeyPair(Path(cert), Path(key or cert), name) if cert else None


def _names(settings: Settings, listen: Address) -> ServerNames | None:
    domain = settings.sni_domain.rstrip(".")
    if not domain:
        return None
    if not DOMAIN.fullmatch(domain) or len(domain) > 200:
        raise ConfigError(
            f"sni_domain is {settings.sni_domain!r}, must be a domain such as kafka.example.org"
        )
    for key in ("broker_ports", "advertised_host"):
        if getattr(settings, key):
            raise ConfigError(f"{key} and sni_domain are two ways to place brokers: leave one out")
    return ServerNames(domain.lower(), listen.port)
