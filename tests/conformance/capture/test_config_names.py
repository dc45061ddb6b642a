"""Values of configs become filler unless Kafka knows the name, and knows it as no secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.capture.conversation import redacted
from tests.wire.frames import request, response
from weir.conformance.capture import credentials
from weir.conformance.capture.public_configs import PUBLIC, is_sensitive
from weir.conformance.capture.redaction import Redaction
from weir.conformance.events import Side
from weir.protocol import ApiKey, messages
from weir.protocol.schema import Field, MessageSchema, api, api_keys

M: Any = messages
VALUE: Final = "hunter2-the-planted-secret"

PASSWORDS: Final = (
    "delegation.token.master.key",
    "delegation.token.secret.key",
    "password.encoder.old.secret",
    "password.encoder.secret",
    "sasl.jaas.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.truststore.password",
)
"""Configs of type PASSWORD in the ConfigDefs of Kafka 0.10.2.2 to 4.2.0, read by reflection."""
PLUGINS: Final = (
    "apikey",
    "api.key",
    "x.passphrase",
    "x.pin",
    "authorizer.url",
    "confluent.license",
    "metric.reporter.dsn",
    "rsm.config.storage.aws.access.key.id",
    "rsm.config.storage.azure.connection.string",
    "remote.log.storage.manager.impl.x",
    "ssl.keystore.passwd",
    "LOG.DIRS",
    "log.dirs ",
    "my.log.dirs",
    "",
    "käse",
)
"""Names that Kafka does not know."""
KNOWN: Final = ("retention.ms", "log.dirs", "compression.type", "listeners", "cleanup.policy", "interval.ms")


def filled(name: str) -> bool:
    """Whether the value of this config became filler, in a request and in a response, with its synonym."""
    alter, describe = M.IncrementalAlterConfigsRequest, M.DescribeConfigsResponse
    changed = alter.AlterConfigsResource(
        resource_name="r", configs=[alter.AlterableConfig(name=name, value=VALUE)]
    )
    synonym = describe.DescribeConfigsSynonym(name=name, value=VALUE)
    config = describe.DescribeConfigsResourceResult(name=name, value=VALUE, synonyms=[synonym])
    sent = request(alter(resources=[changed]), 1)
    asked = request(M.DescribeConfigsRequest(), 4, 2)
    told = response(describe(results=[describe.DescribeConfigsResult(configs=[config])]), 4, 2)
    found = redacted(Redaction(), [(Side.CLIENT, sent), (Side.CLIENT, asked), (Side.SERVER, told)])
    counts = found[Side.CLIENT].count(VALUE.encode()), found[Side.SERVER].count(VALUE.encode())
    assert counts in {(0, 0), (1, 2)}
    return counts == (0, 0)


@pytest.mark.parametrize("name", [*PASSWORDS, *PLUGINS])
@pytest.mark.parametrize("prefix", ["", "listener.name.external.", "listener.name.a-1.scram-sha-256."])
def test_the_value_of_a_password_or_of_an_unknown_config_becomes_filler(name: str, prefix: str) -> None:
    assert filled(prefix + name)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("prefix", ["", "listener.name.external."])
def test_the_value_of_a_known_config_stays(name: str, prefix: str) -> None:
    assert not filled(prefix + name)


def test_a_config_of_a_listeners_mechanism_is_known_by_its_name_behind_the_mechanism() -> None:
    assert not is_sensitive("listener.name.a.scram-sha-256.sasl.login.callback.handler.class")
    assert is_sensitive("listener.name.a.scram-sha-256.log.dirs")


@given(st.text() | st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,9}){0,4}", fullmatch=True))
def test_every_name_that_kafka_lacks_is_sensitive(name: str) -> None:
    assert is_sensitive(name) == (name not in PUBLIC)


def test_no_password_is_public() -> None:
    assert PUBLIC.isdisjoint(PASSWORDS)
    assert len(PUBLIC) == 425


def named_values(message: MessageSchema, fields: tuple[Field, ...], path: str = "") -> Iterator[str]:
    """Paths of the structs with a text `value`: all of these have a name."""
    for field in fields:
        if field.is_struct:
            yield from named_values(message, message.structs[field.type], f"{path}.{field.name}")
        elif (field.name, field.type) == ("value", "string"):
            yield path[1:]


def test_every_text_value_with_a_name_is_a_known_place_of_configs() -> None:
    """A new schema with another such place fails here."""
    asked, told = set(), set()
    for key in map(ApiKey, api_keys()):
        known = api(key)
        assert known is not None
        asked |= {(key, path) for path in named_values(known.request, known.request.fields)}
        told |= {(key, path) for path in named_values(known.response, known.response.fields)}
    for found, masked in ((asked, credentials.REQUESTS), (told, credentials.RESPONSES)):
        tags = {(key, path) for key, path in found if path.endswith("client_tags")}  # a client's own text
        assert found - tags == {(key, path) for key, fields in masked.items() for path in fields.configs}
