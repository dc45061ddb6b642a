"""Write data/kafka_encodings.json and data/throttle_fields.json from the classes of two Kafka releases.

    python -m tests.protocol.record 3.9.1 4.4.0

Kafka's classes read a sample of each message and write it again. NEW determines the versions that it has, OLD
the others, as in `tools.import_schemas`; both releases need a lock file (`python -m tests.kafka lock`).
"""

from __future__ import annotations

import json
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.java.worker import run_java
from tests.kafka import jars
from tests.protocol.generate import sample
from tools.kafka_source import SourceField, SourceMessage, direct_layout, read_jar, snake_case
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.messages import Message
from weir.protocol.schema import api_keys
from weir.protocol.values import schema_of
from weir.protocol.version_differences import THROTTLE_FIELD
from weir.protocol.versions import VersionSet

DATA: Final = Path(__file__).parent / "data"
_BYTES: Final = {"int8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8}
Jar = dict[tuple[int, str], SourceMessage]


class Told(NamedTuple):
    """What the classes of a release said, in the form that `messages_worker` gives."""

    release: str
    source: Jar
    answer: dict[str, Any]


def jar(release: str) -> Jar:
    (path,) = [path for path in jars.classpath(release) if path.name == f"kafka-clients-{release}.jar"]
    return read_jar(path)


def job(source: Jar) -> dict[str, Any]:
    """What the Java process is to do: see `messages_worker`. Samples are in hex, by version."""
    told: dict[str, dict[Any, Any]] = {"messages": {}, "apis": {}, "responses": {}}
    for key in api_keys():
        for message, kind in ((request_type(key), "request"), (response_type(key), "response")):
            found = released(source, key, kind)
            if found is None:
                continue
            samples = {str(version): encoded(message, version) for version in sorted(found.versions)}
            fields = {name: str(max(known.versions)) for name, known in fields_of(found).items()}
            told["messages"][found.name] = {"samples": samples, "fields": fields}
            told["apis"][key] = sorted(found.versions)
            if kind == "response":
                told["responses"][key] = samples
    return told


def released(source: Jar, key: int, kind: str) -> SourceMessage | None:
    found = source.get((key, kind))
    return found if found is not None and found.versions else None


def fields_of(found: SourceMessage) -> dict[str, SourceField]:
    """The fields at the top of a message, by the name that Kafka's class has for it."""
    raw = [field["name"] for field in found.raw["fields"]]
    pairs = zip(raw, found.fields, strict=True)
    return {name[0].lower() + name[1:]: known for name, known in pairs if known.versions}


def encoded(message: type[Message], version: int) -> str:
    return codec(message, version).encode(sample(message, version)).hex()


def merged_message(message: type[Message], told: list[Told]) -> dict[str, Any]:
    """The recorded bytes of one message; `told` begins with the newest release."""
    kind = "request" if message.__name__.endswith("Request") else "response"
    key = schema_of(message).api_key
    found = [(each, known) for each in told if (known := released(each.source, key, kind)) is not None]
    made: dict[str, Any] = {"default": {}, "sample": {}, "refused": {}}
    asked: dict[str, set[int]] = {}
    refused: dict[str, set[int]] = {}
    for each, known in reversed(found):
        answer = each.answer["messages"][known.name]
        for form in ("default", "sample"):
            made[form] |= answer[form]
        for name, field in fields_of(known).items():
            rest = refused.get(field.name, set()) - known.versions
            refused[field.name] = rest | set(map(int, answer["refused"][name]))
            asked[field.name] = asked.get(field.name, set()) | known.versions
    for form in ("default", "sample"):
        made[form] = {version: made[form][version] for version in sorted(made[form], key=int)}
    for name in sorted(asked):
        spelled = (str(VersionSet.of(frozenset(each[name]))) for each in (asked, refused))
        made["refused"][name] = dict(zip(("asked", "refused"), spelled, strict=True))
    return made


def throttle_row(key: int, told: list[Told]) -> dict[str, Any]:
    """The row of an API in throttle_fields.json; `told` begins with the newest release."""
    found = [(each, known) for each in told if (known := released(each.source, key, "response")) is not None]
    rows: dict[int, dict[str, Any]] = {}
    for each, message in reversed(found):
        for version, (request, response) in zip(
            sorted(message.versions), each.answer["apis"][str(key)], strict=True
        ):
            headers = {"request_header_version": request, "response_header_version": response}
            rows[version] = {"version": version, **place(message, version), **headers}
    oldest, _ = found[-1]  # the client of 4.4 waits for every throttle time, in every version
    return {
        "api_key": key,
        "name": response_type(key).__name__.removesuffix("Response"),
        "valid_versions": {
            each.release: [min(known.versions), max(known.versions)] for each, known in reversed(found)
        },
        "throttle_from": min((version for version, row in rows.items() if row["present"]), default=None),
        "flexible_from": min((version for _, known in found for version in known.flexible), default=None),
        "client_backs_off_from": oldest.answer["backs_off"][str(key)],
        "versions": [rows[version] for version in sorted(rows)],
    }


def place(message: SourceMessage, version: int) -> dict[str, Any]:
    """Where the throttle time is in one version of a response."""
    fields = direct_layout(message, version)
    plain = [field for field in fields if field[5] is None]
    tagged = {field[0] for field in fields} - {field[0] for field in plain}
    tags = [each["name"] for each in message.raw["fields"] if snake_case(each["name"]) in tagged]
    names = [field[0] for field in plain]
    if THROTTLE_FIELD not in names:
        return {"present": False, "tagged_fields": tags}
    index = names.index(THROTTLE_FIELD)
    before = list(takewhile(lambda field: field[1] in _BYTES and not field[2], plain[:index]))
    return {
        "present": True,
        "index": index,
        "fields": len(plain),
        "position": "first" if index == 0 else "last" if index == len(plain) - 1 else "middle",
        "body_offset": sum(_BYTES[field[1]] for field in before) if len(before) == index else None,
        "tagged_fields": tags,
    }


def main(old: str, new: str) -> None:
    told = []
    for release in (new, old):
        source = jar(release)
        answer = run_java(release, "messages_worker", "Kafka's classes", job(source), 500)
        told.append(Told(release, source, answer))
    messages = [make(key) for key in api_keys() for make in (request_type, response_type)]
    recorded = {message.__name__: merged_message(message, told) for message in messages}
    lines = [
        f"  {json.dumps(name)}: {json.dumps(each, separators=(',', ':'))}"
        for name, each in sorted(recorded.items())
    ]
    by = f"the message classes of kafka-clients {old} and {new}, each reading and writing the versions it has"
    text = f'{{"produced_by": {json.dumps(by)},\n "messages": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    (DATA / "kafka_encodings.json").write_text(text)
    write_throttle_fields(old, new, [throttle_row(key, told) for key in api_keys()], told[0].answer["errors"])


def write_throttle_fields(old: str, new: str, rows: list[dict[str, Any]], errors: dict[str, int]) -> None:
    """Write the rows, one version a line. The addresses stay: tests/proxy/test_address_fields.py finds new
    ones.
    """
    path = DATA / "throttle_fields.json"
    text = path.read_text()
    lines = []
    for row in rows:
        versions = ",\n".join(f"    {json.dumps(version)}" for version in row.pop("versions"))
        lines.append(f'  {json.dumps(row)[:-1]}, "versions": [\n{versions}\n  ]}}')
    by = (
        f"message schemas of kafka-clients {old} and {new}; client_backs_off_from measured with those jars' "
        "own response classes"
    )
    head = f'{{\n "format_version": 1,\n "produced_by": {json.dumps(by)},\n'
    kind = ' "throttle_field_type": "int32, milliseconds",\n "responses": [\n'
    rest = f' ],\n "errors": {json.dumps(errors)},\n' + text[text.index(' "addresses"') :]
    path.write_text(head + kind + ",\n".join(lines) + "\n" + rest)


if __name__ == "__main__":
    main(*sys.argv[1:])
