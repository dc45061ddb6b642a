"""Plans that are made at the start: no compiling for a client's first request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol import schema
from protocol.api import ApiKey, versions
from protocol.messages import FetchResponse, ProduceRequest
from protocol.scanning.topic_bytes import TopicBytes
from protocol.versions import VersionRange
from proxy.counters import Counters
from proxy.handlers.plans import Plans, prepare

if TYPE_CHECKING:
    import pytest


def test_no_plan_reads_schemas_or_compiles_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare()

    def refuse(*_: object) -> None:
        raise AssertionError("work that belongs to the start")

    known = {
        int(key): VersionRange(found.min, found.max) for key in ApiKey if (found := versions(key)) is not None
    }
    monkeypatch.setattr("builtins.compile", refuse)
    monkeypatch.setattr(schema, "_read", refuse)
    plans = Plans(Counters()).for_broker(
        {key: VersionRange(each.min, each.max) for key, each in known.items()}
    )
    for key, each in known.items():
        for version in range(each.min, each.max + 1):
            plans.make(key, version)
    TopicBytes(ProduceRequest, 9, ())
    TopicBytes(FetchResponse, 12, ())


def test_a_schema_is_read_once_whether_the_key_is_a_number_or_a_member() -> None:
    assert schema.api(ApiKey.METADATA) is schema.api(3)
