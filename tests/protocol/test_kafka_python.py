"""kafka-python's own codec, driven by copies of Kafka's schemas, writes the same bytes for the same
values."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.generate import each_version, every_version, messages
from weir.protocol.codec import codec
from weir.protocol.values import Message

MODULES: Final = (
    *("admin.acl", "admin.client_quotas", "admin.cluster", "admin.configs", "admin.groups", "admin.topics"),
    *("admin.transactions", "admin.users", "consumer.fetch", "consumer.group", "consumer.metadata"),
    *("consumer.offsets", "metadata.api_versions", "metadata.find_coordinator", "metadata.metadata"),
    *("producer.produce", "producer.transaction", "sasl"),
)


def find_classes() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # it reads its schemas by a function deprecated in 3.11
        for module in MODULES:
            importlib.import_module(f"kafka.protocol.{module}")
        return {
            cls.__name__: cls
            for cls in _below(importlib.import_module("kafka.protocol.api_message").ApiMessage)
        }


def _below(cls: Any) -> Iterator[Any]:
    for below in cls.__subclasses__():
        yield below
        yield from _below(below)


CLASSES = find_classes()
KNOWN = [
    (message, version)
    for message, version in every_version()
    if message.__name__ in CLASSES
    and CLASSES[message.__name__].valid_versions[0] <= version <= CLASSES[message.__name__].valid_versions[1]
]

RENAMED = {"generation_id": "generation_id_or_member_epoch"}
"""Fields that Kafka 4.4 has renamed in TxnOffsetCommit."""


@settings(max_examples=1)
@given(data=st.data())
@each_version(KNOWN)
def test_kafka_python_writes_the_same_bytes(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(messages(message, version, tame=True))
    theirs = bytes(convert(value, CLASSES[message.__name__], version).encode(version=version))
    assert codec(message, version).encode(value) == theirs
    assert codec(message, version).decode(theirs) == value


def convert(value: Any, cls: Any, version: int) -> Any:
    fields = {}
    for field in cls._struct.fields.values():
        if not field.for_version_q(version):
            continue
        if field.name == "authorized_operations":
            fields[field.name] = _bits(_operations(value))
            continue
        name = field.name if hasattr(value, field.name) else RENAMED[field.name]
        inner = getattr(value, name)
        if field.tag is not None and inner == getattr(type(value)(), name):
            continue  # kafka-python would write the tags of some defaults
        if field.is_struct() and inner is not None:
            inner = convert(inner, field.data_class, version)
        elif field.is_struct_array() and inner is not None:
            inner = [convert(element, field.data_class, version) for element in inner]
        fields[field.name] = inner
    return cls(**fields)


def _operations(value: Any) -> int:
    """kafka-python calls a topic's, a cluster's and a group's bits the same."""
    names = [name for name in value.__struct_fields__ if name.endswith("authorized_operations")]
    assert len(names) == 1
    bits: int = getattr(value, names[0])
    return bits


def _bits(number: int) -> set[int]:
    """Which bits of an int32 are set: kafka-python's form of authorized operations."""
    return {bit for bit in range(32) if number >> bit & 1}
