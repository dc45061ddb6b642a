"""Work of the first connection that is done at the start."""

from __future__ import annotations

from tests.proxy.metrics_page import registry_of
from weir.protocol import schema
from weir.protocol.api import ApiKey, versions
from weir.proxy.config import config
from weir.proxy.net.drivers import monotonic_us
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.server import Server


def test_a_server_has_read_the_schemas_before_the_first_connection() -> None:
    schema.api.cache_clear()
    reactor = Reactor(monotonic_us)
    try:
        Server(config.load(None, {"upstream": "kafka:9092"}), reactor, registry_of())
    finally:
        reactor.close()
    read = schema.api.cache_info().misses
    for api_key in ApiKey:
        versions(api_key)
    assert schema.api.cache_info().misses == read
