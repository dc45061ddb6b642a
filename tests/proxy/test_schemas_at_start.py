"""Work of the first connection that is done at the start."""

from __future__ import annotations

import pytest

from tests.proxy.worker_rigs import running_worker
from weir.protocol import schema
from weir.protocol.api import ApiKey, versions
from weir.protocol.messages import FetchResponse, ProduceRequest
from weir.protocol.scanning.topic_bytes import TopicBytes
from weir.protocol.versions import VersionRange
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans, prepare


@pytest.mark.trio
async def test_a_worker_prepares_all_plans_before_the_first_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("weir.proxy.server.data_plane.prepare", lambda: calls.append("prepare"))
    async with running_worker():
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
