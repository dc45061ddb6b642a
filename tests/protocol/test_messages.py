"""Messages as values: what the classes are like, and that the stub for type checkers says the same."""

from __future__ import annotations

import ast
import uuid
from pathlib import Path

import pytest

from weir.protocol import messages, schema
from weir.protocol.messages import FetchRequest, FetchResponse, MetadataResponse
from weir.protocol.values import message_type

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
    return [
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
