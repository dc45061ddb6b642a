"""What librdkafka is told: it must reach brokers as Weir does, and take every name and value."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from confluent_kafka import Consumer

from weir.proxy.config.config import load
from weir.proxy.control.stores.topic_log import Properties, TopicLog, properties

SAYS_NOTHING = {"client.id", "log_level", "socket.keepalive.enable", "reconnect.backoff.max.ms"}


def told(**settings: object) -> Properties:
    found = properties(load(None, {"upstream": "kafka-1:9092,[::1]:9093", **settings}))
    Consumer(found | {"group.id": "test"}).close()  # it refuses what it does not know
    assert found.keys() >= SAYS_NOTHING
    return {key: value for key, value in found.items() if key not in SAYS_NOTHING}


def password_file(directory: Path) -> str:
    path = directory / "password"
    path.write_text("s=cr t\n")
    return str(path)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_gets_properties_for_sasl(tmp_path: Path, mechanism: str) -> None:
    found = told(
        upstream_sasl_mechanism=mechanism,
        upstream_sasl_username="weir",
        upstream_sasl_password_file=password_file(tmp_path),
    )
    assert found == {
        "bootstrap.servers": "kafka-1:9092,[::1]:9093",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "weir",
        "sasl.password": "s=cr t",
    }


def test_librdkafka_gets_properties_for_tls_with_one_file_for_certificate_and_key(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, pair = str(tmp_path / "ca.pem"), str(tmp_path / "pair.pem")
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("weir").private_key_and_cert_chain_pem.write_to_path(pair)
    assert told(upstream_tls=ca, upstream_cert=pair) == {
        "bootstrap.servers": "kafka-1:9092,[::1]:9093",
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.location": ca,
        "ssl.certificate.location": pair,
        "ssl.key.location": pair,
    }


def test_librdkafka_gets_properties_for_sasl_over_tls_without_hostname_check(tmp_path: Path) -> None:
    found = told(
        upstream_tls="system",
        upstream_verify_host=False,
        upstream_sasl_mechanism="PLAIN",
        upstream_sasl_username="weir",
        upstream_sasl_password_file=password_file(tmp_path),
    )
    assert found["security.protocol"] == "SASL_SSL"
    assert found["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize("oauth", [False, True])
def test_librdkafka_accepts_the_properties_of_reader_and_writer(tmp_path: Path, oauth: bool) -> None:
    login = {
        "upstream_sasl_mechanism": "OAUTHBEARER",
        "upstream_sasl_username": "weir",
        "upstream_sasl_password_file": password_file(tmp_path),
        "upstream_sasl_token_url": "http://127.0.0.1:1/token",
        "upstream_sasl_scope": "kafka",
        "upstream_sasl_extensions": "logicalCluster=lkc-1",
    }
    log = TopicLog("quotas", properties(load(None, {"upstream": "127.0.0.1:1", **(login if oauth else {})})))
    log.reader().close()
    for idempotent in (True, False):
        log.writer(idempotent=idempotent).close()
