"""Settings about TLS: what does not fit together stops the start, in one line; files are read later."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.certificates import HOST, write_ca, write_pair
from weir.proxy.addresses import ServerNames
from weir.proxy.config import config
from weir.proxy.config.config import ConfigError
from weir.proxy.net.tls.contexts import KeyPair, server_context

CERT = {"tls_cert": "tls.pem"}


def load(**options: Any) -> config.Config:
    return config.load(None, {"upstream": "kafka:9092", **options})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tls_cert": ",k"}, "tls_cert is ',k', must be CERTIFICATE or CERTIFICATE,KEY"),
        ({"tls_client_ca": "ca"}, "tls_client_ca is set, but listeners speak TLS only with tls_cert"),
        ({"sni_domain": "d"}, "sni_domain is set, but listeners speak TLS only with tls_cert"),
        ({"tls_client_auth": "required"}, "tls_client_auth is set, but"),
        (CERT | {"tls_client_auth": "required"}, "tls_client_auth requested or required goes with"),
        (CERT | {"tls_client_ca": "ca"}, "tls_client_auth requested or required goes with"),
        (CERT | {"ssl_principal_mapping_rules": "RULE:x"}, "ssl_principal_mapping_rules"),
        (CERT | {"sni_domain": "a_b"}, "sni_domain is 'a_b', must be a domain"),
        (CERT | {"sni_domain": "-a.b"}, "must be a domain"),
        (CERT | {"sni_domain": "d", "broker_ports": "1-2"}, "broker_ports and sni_domain are two ways"),
        (CERT | {"sni_domain": "d", "advertised_host": "h"}, "advertised_host and sni_domain are two ways"),
        (
            {"upstream_cert": "c"},
            "upstream_cert is set, but brokers are spoken to in TLS only with upstream_tls",
        ),
    ],
)
def test_contradictory_tls_settings_stop_the_start(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^[^\n]*{text}[^\n]*$"):
        load(**options)


@pytest.mark.parametrize(
    ("name", "node_id"),
    [
        ("broker-0.d.org", 0),
        ("BROKER-12.D.ORG", 12),
        ("broker-12.d.org.", 12),
        ("bootstrap.d.org", None),
        ("broker-1.other.org", None),
        ("broker-01.d.org", None),
        ("broker--1.d.org", None),
        ("broker-1", None),
        ("broker-1.x.d.org", None),
        ("broker-\u0661.d.org", None),
        ("broker-99999999999.d.org", None),
        ("", None),
        (None, None),
    ],
)
def test_a_server_name_means_a_broker_or_the_bootstrap_listener(
    name: str | None, node_id: int | None
) -> None:
    assert ServerNames("d.org", 9093).node_id(name) == node_id


def test_certificate_files_that_openssl_refuses_are_reported_in_words(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, HOST)
    (tmp_path / "other").mkdir()
    _, other = write_pair(tmp_path / "other", HOST)
    empty, gone = tmp_path / "empty", tmp_path / "gone"
    empty.touch()
    for pair, text in (
        ((cert, other), "the key is not that of the certificate"),
        ((cert, cert), "it holds no private key: add it, or set tls_cert to CERTIFICATE,KEY"),
        ((cert, gone), rf"^tls_cert {gone} cannot be used: no such file"),
        ((gone, key), rf"^tls_cert {gone} cannot be used: no such file"),
        ((key, key), rf"^tls_cert {key} cannot be used: it holds no certificate"),
        ((empty, key), rf"^tls_cert {empty} cannot be used: it holds no certificate"),
        ((cert, empty), rf"^tls_cert {empty} cannot be used: it holds no private key"),
        ((cert, cert.parent), rf"^tls_cert {cert.parent} cannot be used: it is a directory"),
    ):
        with pytest.raises(ConfigError, match=text):
            server_context(KeyPair(*pair, "tls_cert"), ssl.CERT_NONE, None)
    with pytest.raises(ConfigError, match=r"tls_client_ca .*empty cannot be used: "):
        server_context(KeyPair(cert, key, "tls_cert"), ssl.CERT_REQUIRED, empty)


def test_an_encrypted_key_is_refused_without_a_password_prompt(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    cert, key = write_pair(tmp_path, HOST)
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="the key is encrypted"):
        server_context(KeyPair(cert, key, "tls_cert"), ssl.CERT_NONE, None)


def test_tls_contexts_are_as_strict_as_documented(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, HOST)
    context = server_context(KeyPair(cert, key, "tls_cert"), ssl.CERT_REQUIRED, write_ca(tmp_path))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.options & ssl.OP_NO_RENEGOTIATION
