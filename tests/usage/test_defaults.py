"""What a field that was left out of a record means."""

from __future__ import annotations

import msgspec
import pytest

from weir.usage.records import ByQuota, TraceRecord, UsageRecord
from weir.usage.schema import defaults, required


@pytest.mark.parametrize("record", [UsageRecord, TraceRecord])
def test_every_field_of_a_usage_record_is_required_or_has_a_default(record: type[msgspec.Struct]) -> None:
    assert [*required(record), *defaults(record)] == [field.name for field in msgspec.structs.fields(record)]


def test_a_struct_default_of_a_usage_record_has_all_its_fields() -> None:
    assert defaults(UsageRecord)["throttle_ms"] == dict.fromkeys(ByQuota.__struct_fields__, 0)
