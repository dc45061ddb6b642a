"""Messages as values: what the classes are like, and that the stub for type checkers says the same."""

from __future__ import annotations

import ast
import copy
import pickle
import uuid
from pathlib import Path
from typing import Any, cast

import pytest

from weir.protocol import messages, schema
from weir.protocol.messages import CreateTopicsRequest, FetchRequest, FetchResponse, MetadataResponse
from weir.protocol.values import Message, Value, message_type

STUB = ast.parse((Path(schema.__file__).parent / "messages.pyi").read_text())


def test_unset_message_fields_hold_kafkas_defaults() -> None:
    response = MetadataResponse()
    assert (response.controller_id, response.cluster_id, response.brokers) == (-1, None, [])
    assert response.cluster_authorized_operations == -(1 << 31)
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.session_epoch) == (-1, 0x7FFFFFFF, -1)
    assert request.replica_state == FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert FetchResponse.PartitionData().records is None
    assert MetadataResponse.MetadataResponseTopic().topic_id == uuid.UUID(int=0)


def test_message_values_are_keyword_only_comparable_and_share_no_state() -> None:
    assert CreateTopicsRequest(timeout_ms=5) == CreateTopicsRequest(timeout_ms=5) != CreateTopicsRequest()
    with pytest.raises(TypeError):
        cast("Any", CreateTopicsRequest)(5)
    first, second = CreateTopicsRequest(), CreateTopicsRequest()
    first.topics.append(CreateTopicsRequest.CreatableTopic(name="a"))
    assert second.topics == []
    assert FetchRequest().replica_state is not FetchRequest().replica_state


def test_message_structs_are_nested_classes() -> None:
    assert issubclass(MetadataResponse, Message)
    assert issubclass(MetadataResponse.MetadataResponseBroker, Value)
    assert MetadataResponse.MetadataResponseBroker.__qualname__ == "MetadataResponse.MetadataResponseBroker"
    assert repr(MetadataResponse(controller_id=3)) == "MetadataResponse(controller_id=3)"


def test_message_values_can_be_copied_and_pickled() -> None:
    value = MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(host="a")])
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301  # just made


def test_every_message_class_has_a_schema() -> None:
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        messages.NoSuchRequest  # type: ignore[attr-defined]  # the point  # noqa: B018
    with pytest.raises(KeyError):
        message_type("NoSuchRequest")
    assert "MetadataResponse" in dir(messages)


def test_the_message_stub_has_every_runtime_class_and_field() -> None:
    classes = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
    assert set(classes) | {"Message", "Value"} == set(dir(messages))
    for name, node in classes.items():
        built = message_type(name)
        assert fields(node) == list(built.__struct_fields__)[1:]
        for inner in node.body:
            if isinstance(inner, ast.ClassDef):
                assert fields(inner) == list(getattr(built, inner.name).__struct_fields__)[1:]


def fields(node: ast.ClassDef) -> list[str]:
    """The fields that a class of the stub declares."""
    return [
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
