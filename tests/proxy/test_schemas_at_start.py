"""Work of the first connection that is done at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.proxy.metrics_page import registry_of
from weir.protocol import schema
from weir.protocol.api import ApiKey, versions
from weir.protocol.messages import FetchResponse, ProduceRequest
from weir.protocol.scanning.topic_bytes import TopicBytes
from weir.protocol.versions import VersionRange
from weir.proxy.config import config
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans, prepare
from weir.proxy.net.drivers import monotonic_us
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.server import Server

if TYPE_CHECKING:
    import pytest


def test_a_server_prepares_all_plans_before_the_first_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("weir.proxy.server.data_plane.prepare", lambda: calls.append("prepare"))
    reactor = Reactor(monotonic_us)
    try:
        Server(config.load(None, {"upstream": "kafka:9092"}), reactor, registry_of())
    finally:
        reactor.close()
    assert calls == ["prepare"]


def test_no_plan_reads_schemas_or_compiles_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare()

    def refuse(*_: object) -> None:
        raise AssertionError("work that belongs to the start")

    known = {
        int(key): VersionRange(found.min, found.max) for key in ApiKey if (found := versions(key)) is not None
    }
    monkeypatch.setattr("builtins.compile", refuse)
    monkeypatch.setattr(schema, "_read", refuse)
    plans = Plans(Counters()).for_broker(known)
    for key, each in known.items():
        for version in range(each.min, each.max + 1):
            plans.make(key, version)
    TopicBytes(ProduceRequest, 9, ())
    TopicBytes(FetchResponse, 12, ())


def test_a_schema_is_read_once_whether_the_key_is_a_number_or_a_member() -> None:
    assert schema.api(ApiKey.METADATA) is schema.api(3)
