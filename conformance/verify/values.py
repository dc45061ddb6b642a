"""Checks of a decoded message's values: error codes, throttle times, records."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from weir.conformance.verify.error_codes import ERRORS_OF_APIS
from weir.conformance.verify.finding import Defect
from weir.conformance.verify.producers import ProducedBatch
from weir.conformance.verify.record_batches import BatchChecker, bounds
from weir.conformance.verify.rules import R
from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.conformance.verify.producers import Producers
    from weir.protocol.schema import Layout
    from weir.protocol.values import Message, Value

_KNOWN: Final = frozenset(int(code) for code in ErrorCode)
STRICT_FROM: Final = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
    ApiKey.PUSH_TELEMETRY: 0,
}
"""First version that may have error 89, by API (KIP-599; KIP-714, for a client that comes too early)."""
_ACKS: Final = frozenset({-1, 0, 1})
_NAMES_SOFTWARE_FROM: Final = 3
"""First version of ApiVersions with the names of the client's software (KIP-511)."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Source: KIP-511; Kafka's class ApiVersionsRequest."""
SHOWN_MAX: Final = 100
"""Maximum length (characters) of a value of a client that a finding shows."""
DEFECTS_MAX: Final = 20
"""Maximum number of wrong error codes reported of one message."""

Tree = tuple[tuple[str, bool, "Tree | None"], ...]
"""Fields that are error codes, or contain them: (name, True for an array, fields below or None)."""


@cache
def _error_fields(message: type[Message], version: int) -> Tree:
    return _tree(codec(message, version).layout)


def _tree(layout: Layout) -> Tree:
    found: list[tuple[str, bool, Tree | None]] = []
    for slot in layout.fields + layout.tagged:
        if slot.struct is not None:
            if below := _tree(slot.struct):
                found.append((slot.name, slot.is_array, below))
        elif slot.type == "int16" and slot.name.endswith("error_code") and not slot.is_array:
            found.append((slot.name, False, None))
    return tuple(found)


def _codes(value: Value, tree: Tree, path: str) -> Iterator[tuple[str, int]]:
    """Yield (path, error code) for each code that is not 0."""
    for name, is_array, below in tree:
        content = getattr(value, name)
        if below is None:
            if content:
                yield path + name, content
        elif is_array:
            for index, element in enumerate(content or ()):
                yield from _codes(element, below, f"{path}{name}[{index}].")
        elif content is not None:
            yield from _codes(content, below, f"{path}{name}.")


def error_code_defects(message: Message, api_key: int, version: int) -> list[Defect]:
    """Return the defects of a response's error codes."""
    tree = _error_fields(type(message), version)
    defects: list[Defect] = []
    if not tree:
        return defects
    for path, code in _codes(message, tree, ""):
        if code not in _KNOWN:
            text = "The server answers an error code that Kafka lacks."
            defects.append(Defect(R.ERROR_CODE_UNKNOWN, text, path, -1, "a code of Kafka 4.4", str(code)))
        elif code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            defects += _error_89(path, api_key, version)
        elif api_key in ERRORS_OF_APIS and code not in ERRORS_OF_APIS[api_key]:
            defects.append(_error_of_other_apis(path, api_key, code))
        if len(defects) >= DEFECTS_MAX:
            break
    return defects


def _error_89(path: str, api_key: int, version: int) -> list[Defect]:
    since = STRICT_FROM.get(ApiKey(api_key))
    if since is not None and version >= since:
        return []
    text = "The server answers error 89, which this version does not know. Delay the request instead."
    expected = "another code" if since is None else f"from version {since}"
    return [Defect(R.ERROR_89_VERSION, text, path, -1, expected, f"version {version}")]


def _error_of_other_apis(path: str, api_key: int, code: int) -> Defect:
    text = "The server answers an error code that is not one of this API. Clients may not handle it."
    known = ", ".join(str(one) for one in sorted(ERRORS_OF_APIS[api_key]))
    return Defect(R.ERROR_CODE_OF_API, text, path, -1, known, f"{code} ({ErrorCode(code).name})")


def request_defects(message: Any, api_key: int, version: int) -> list[Defect]:
    """Return the defects of a request's values that brokers answer with an error code."""
    if api_key == ApiKey.PRODUCE and message.acks not in _ACKS:
        text = "The client asks for acknowledgements that do not exist. Brokers answer error 21."
        return [Defect(R.PRODUCE_ACKS, text, "acks", -1, "-1, 0 or 1", str(message.acks))]
    if api_key != ApiKey.API_VERSIONS or version < _NAMES_SOFTWARE_FROM:
        return []
    text = "The client names its software in other characters than KIP-511 permits. Brokers answer error 42."
    return [
        Defect(R.CLIENT_SOFTWARE, text, name, -1, _SOFTWARE.pattern, repr(value[:SHOWN_MAX]))
        for name in ("client_software_name", "client_software_version")
        if not _SOFTWARE.fullmatch(value := getattr(message, name))
    ]


def throttle_defects(throttle_ms: int) -> list[Defect]:
    """Return the defects of a response's throttle time (ms)."""
    if throttle_ms >= 0:
        return []
    text = "The server answers a negative throttle time. Answer 0 without a throttle."
    return [Defect(R.THROTTLE_NEGATIVE, text, "throttle_time_ms", -1, "at least 0", str(throttle_ms))]


def _records(message: Any, api_key: int) -> Iterator[tuple[str, str, int, bytes]]:
    """Yield (path, topic, partition, records) of Produce requests and Fetch and ShareFetch responses."""
    if api_key == ApiKey.PRODUCE:
        for at, topic in enumerate(message.topic_data):
            for index, part in enumerate(topic.partition_data):
                yield (
                    f"topic_data[{at}].partition_data[{index}].records",
                    topic.name or str(topic.topic_id),
                    part.index,
                    part.records,
                )
        return
    for at, topic in enumerate(message.responses):
        name = getattr(topic, "topic", "") or str(topic.topic_id)
        for index, part in enumerate(topic.partitions):
            yield f"responses[{at}].partitions[{index}].records", name, part.partition_index, part.records


def records_defects(
    message: Message, api_key: int, api: str, version: int, producers: Producers
) -> tuple[list[Defect], dict[str, int], list[ProducedBatch]]:
    """Return (defects of all records in a message, with offsets within their fields; path of each records
    field with defects → its size in bytes; a Produce request's batches that have a producer id).
    """
    permitted = bounds(api, version)
    defects: list[Defect] = []
    sizes: dict[str, int] = {}
    sent: list[ProducedBatch] = []
    for path, topic, partition, records in _records(message, api_key):
        if not records:
            continue
        checker = BatchChecker(records, permitted)
        checker.check()
        found = checker.defects
        if permitted.produce:
            for batch, head, offset in checker.heads:
                found += producers.check(topic, partition, batch, head, offset)
                if head.producer_id >= 0:
                    sent.append(ProducedBatch(topic, partition, head))
        if found:
            sizes[path] = len(records)
            defects += [
                Defect(one.rule, one.message, path + one.path, one.offset, one.expected, one.found)
                for one in found
            ]
    return defects, sizes, sent
