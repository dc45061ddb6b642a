"""librdkafka's properties for Weir's access to brokers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from proxy.addresses import Address

if TYPE_CHECKING:
    from proxy.config.config import Config

Properties: TypeAlias = dict[str, str | int | float | bool]


def properties(config: Config, brokers: Iterable[Address] = ()) -> Properties:
    """Return the properties of every librdkafka client, password included; `brokers` are added to the
    upstream.
    """
    settings, credentials = config.settings, config.credentials
    addresses = dict.fromkeys([*config.upstream, *brokers])
    protocol = ("SASL_" if credentials else "") + ("SSL" if settings.upstream_tls else "PLAINTEXT")
    found: Properties = {
        "bootstrap.servers": ",".join(map(str, addresses)),
        "client.id": "weir",
        "security.protocol": protocol,
        "log_level": 0,  # Weir logs failures itself, once
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 1000,
    }
    if credentials is not None:
        found |= {
            "sasl.mechanism": credentials.mechanism,
            "sasl.username": credentials.username,
            "sasl.password": credentials.password,
        }
    if settings.upstream_tls:
        found["ssl.endpoint.identification.algorithm"] = "https" if settings.upstream_verify_host else "none"
        if settings.upstream_ca:
            found["ssl.ca.location"] = settings.upstream_ca
        if settings.upstream_cert:
            found["ssl.certificate.location"] = settings.upstream_cert
            found["ssl.key.location"] = settings.upstream_key or settings.upstream_cert
    return found
