"""The importer: merges two releases, checks itself, owns its output.

Small jars made here; the real ones as oracle.
"""

from __future__ import annotations

import fcntl
import json
import os
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tools import import_schemas
from tools.compare_schemas import Kind, compare, handlers_of
from tools.import_schemas import Merged, check, generate, write
from tools.kafka_source import SchemaError, direct_layout, read_jar
from weir.protocol import schema
from weir.protocol.versions import VersionSet

Json = dict[str, Any]

PAGE: Final = Path(import_schemas.__file__).parents[1] / "docs" / "how-to" / "new-kafka-release.md"
HEADERS: Final = [
    {
        "type": "header",
        "name": f"{kind}Header",
        "validVersions": "0-1",
        "flexibleVersions": "1+",
        "fields": [],
    }
    for kind in ("Request", "Response")
]


def field(name: str, type_: str = "int32", versions: str = "0+", **more: object) -> Json:
    return {"name": name, "type": type_, "versions": versions, "about": "Prose, with // slashes.", **more}


def message(
    kind: str, fields: list[Json], versions: str = "0-2", name: str = "Thing", **more: object
) -> Json:
    flexible = {"flexibleVersions": "2+"} | more
    name += kind.capitalize()
    return {"apiKey": 7, "type": kind, "name": name, "validVersions": versions, "fields": fields, **flexible}


def jar(directory: Path, name: str, request: Json, response: Json | None = None) -> Path:
    """A jar of one API, its headers, and a data schema that is not to be read."""
    default = message("response", [], request["validVersions"], request["name"].removesuffix("Request"))
    contents = [*HEADERS, request, response or default, {"type": "data", "name": "SomeRecord"}]
    path = directory / name
    with zipfile.ZipFile(path, "w") as archive:
        for each in contents:
            text = "// A licence.\n" + json.dumps(each, indent=1).replace("{\n", "{ // why\n")
            archive.writestr(f"common/message/{each['name']}.json", text)
        archive.writestr("common/other.json", "not a schema")
    return path


def merged(tmp_path: Path, old: Json, new: Json) -> schema.MessageSchema:
    """The request of API 7, merged from two jars and verified."""
    jars = [read_jar(jar(tmp_path, name, request)) for name, request in (("old.jar", old), ("new.jar", new))]
    generate(*jars)
    return Merged(jars[0][7, "request"], jars[1][7, "request"]).stored_schema()


def names(found: schema.MessageSchema, version: int) -> list[str]:
    layout = found.layout(version)
    return [slot.name for slot in layout.fields + layout.tagged]


def test_merged_schemas_keep_old_layouts_for_versions_of_the_old_release(tmp_path: Path) -> None:
    old = message("request", [field("A"), field("Gone", versions="0-1"), field("B", versions="1+")], "0-2")
    new = message("request", [field("A"), field("Added", versions="3+"), field("B", versions="1+")], "2-3")
    found = merged(tmp_path, old, new)
    assert [names(found, version) for version in range(4)] == [
        ["a", "gone"],
        ["a", "gone", "b"],
        ["a", "b"],
        ["a", "added", "b"],
    ]


def test_a_schema_field_may_have_gaps_in_its_versions(tmp_path: Path) -> None:
    old = message("request", [field("A", versions="0-1")], "0-2")
    new = message("request", [field("A", versions="0-1"), field("B", versions="3+")], "3")
    assert [names(merged(tmp_path, old, new), version) for version in range(4)] == [["a"], ["a"], [], ["b"]]
    new = message("request", [field("A", versions="3+")], "3")
    found = merged(tmp_path, old, new)
    assert found.fields[0].versions == VersionSet.parse("0-1,3")


def test_structs_tags_defaults_and_flags_survive_the_schema_import(tmp_path: Path) -> None:
    request = message(
        "request",
        [
            field("Things", "[]Thing", fields=[field("Key", "string", mapKey=True, entityType="topicName")]),
            field("Shared", "Common", "2+", nullableVersions="2+", default="null"),
            field("Tagged", "int64", "2+", taggedVersions="2+", tag="0", default="0x7f", ignorable=True),
            field("Flag", "bool", default="true"),
            field("Data", "records", nullableVersions="0+"),
        ],
        commonStructs=[{"name": "Common", "versions": "2+", "fields": [field("X", "float64")]}],
    )
    found = merged(tmp_path, request, request)
    things, shared, tagged, flag, data = found.fields
    assert found.structs[things.type][0].map_key
    assert found.structs[things.type][0].entity_type == "topicName"
    assert (shared.type, shared.default) == ("Common", None)
    assert (tagged.tag, tagged.default, tagged.ignorable) == (0, 127, True)
    assert flag.default is True
    assert data.default is None
    layout = found.layout(2)
    assert [slot.name for slot in layout.tagged] == ["tagged"]
    assert layout.fields[1].nullable


def test_a_renamed_api_has_its_newest_name(tmp_path: Path) -> None:
    old = message("request", [field("A")], "0", name="ListOldThings")
    new = message("request", [field("A")], "0-1", name="ListThings")
    jars = [read_jar(jar(tmp_path, name, each)) for name, each in (("old.jar", old), ("new.jar", new))]
    assert "schemas/007_list_things.json" in generate(*jars)


def test_an_api_removed_from_kafka_keeps_its_versions(tmp_path: Path) -> None:
    gone = {"apiKey": 7, "type": "request", "name": "ThingRequest", "validVersions": "none"}
    found = merged(tmp_path, message("request", [field("A")], "0-2"), gone)
    assert str(found.versions) == "0-2"


def test_a_version_unstable_in_the_old_release_has_the_new_releases_layout(tmp_path: Path) -> None:
    old = message("request", [field("A")], "0-1", latestVersionUnstable=True)
    new = message("request", [field("A"), field("B", versions="1+")], "0-1")
    assert names(merged(tmp_path, old, new), 1) == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ([field("A")], [field("A", "int64")], r"ThingRequest, field a: type changed from int32 to int64"),
        ([field("A", default="1")], [field("A", default="2")], r"field a: default changed from 1 to 2"),
        ([field("A")], [field("A"), field("B")], r"ThingRequest v0, field b: the new jar has"),
        ([field("A"), field("B")], [field("B"), field("A")], r"ThingRequest v0, field a: the old jar has"),
        ([field("A", "[]Nope")], [field("A")], r"field A: unknown type Nope"),
        ([field("A", surprise=1)], [field("A")], r"field A: unknown keys \['surprise'\]"),
        (
            [field("A", "string", default="null")],
            [field("A")],
            r"field a: default null, but nullable in no version",
        ),
        (
            [field("A", taggedVersions="0+", tag=0)],
            [field("A")],
            r"field a: tagged in a version that .* not flexible",
        ),
        ([field("A", "uuid", default="x")], [field("A")], r"field A: default 'x' for a uuid"),
        ([field("A", fields=[])], [field("A")], r"field A: a int32 cannot have fields"),
    ],
)
def test_contradicting_schemas_are_an_error_that_names_message_field_and_rule(
    tmp_path: Path, old: list[Json], new: list[Json], complaint: str
) -> None:
    with pytest.raises(SchemaError, match=complaint):
        merged(tmp_path, message("request", old), message("request", new))


def test_the_schema_importer_removes_stale_files_and_checks_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    room = tmp_path / "room"
    (room / "schemas").mkdir(parents=True)
    (room / "schemas" / "999_stale.json").write_text("{}")
    monkeypatch.setattr(schema, "__file__", str(room / "schema.py"))
    same = str(jar(tmp_path, "same.jar", message("request", [field("A")])))

    assert import_schemas.main([same, same, "--check"]) == 1
    said = capsys.readouterr().err
    assert "stale: schemas/999_stale.json" in said
    assert "missing: schemas/007_thing.json" in said
    assert import_schemas.main([same, same]) == 0
    assert sorted(path.name for path in (room / "schemas").iterdir()) == ["007_thing.json", "headers.json"]
    assert import_schemas.main([same, same, "--check"]) == 0
    (room / "messages.pyi").write_text("edited by hand")
    assert import_schemas.main([same, same, "--check"]) == 1
    assert "differs: messages.pyi" in capsys.readouterr().err

    wrong = str(jar(tmp_path, "wrong.jar", message("request", [field("A", "[]Nope")])))
    assert import_schemas.main([wrong, same]) == 2
    assert "unknown type Nope" in capsys.readouterr().err


HEARTBEAT: Final[Json] = {"name": "Heartbeat", "apiKey": 12, "flexibleVersions": "4+"}
HEARTBEAT_FIELDS: Final = [
    field("GroupId", "string"),
    field("GenerationId"),
    field("MemberId", "string"),
    field("GroupInstanceId", "string", "3+", nullableVersions="3+"),
]


@pytest.mark.parametrize(
    ("changed", "versions", "found"),
    [
        ({}, "0-4", []),
        ({}, "1-5", [("5", Kind.SAME, "")]),
        ({4: field("TopicId", "uuid", "5+")}, "0-5", [("5", Kind.IDS, "request: +topic_id")]),
        ({4: field("More", "int8", "5+")}, "0-5", [("5", Kind.FIELDS, "request: +more")]),
        ({1: field("Epoch")}, "0-4", [("0-4", Kind.RENAMED, "+epoch -generation_id")]),
        ({1: field("GenerationId", "int64")}, "3-4", [("3-4", Kind.CHANGED, "generation_id differs")]),
    ],
)
def test_a_newer_jar_is_compared_with_the_schemas_of_the_tree(
    tmp_path: Path, changed: dict[int, Json], versions: str, found: list[tuple[str, Kind, str]]
) -> None:
    fields = [changed.get(index, each) for index, each in enumerate([*HEARTBEAT_FIELDS, None])]
    request = message("request", [each for each in fields if each is not None], versions, **HEARTBEAT)
    told = [field("ThrottleTimeMs", versions="1+"), field("ErrorCode", "int16")]
    changes = compare(jar(tmp_path, "new.jar", request, message("response", told, versions, **HEARTBEAT)))
    assert [(change.versions, change.kind, change.details) for change in changes] == found


def test_a_comparison_names_new_apis_and_the_handlers_concerned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = [message(kind, [], "0", apiKey=4711) for kind in ("request", "response")]
    assert import_schemas.main(["--compare", str(jar(tmp_path, "new.jar", *new))]) == 1
    assert capsys.readouterr().out == "4711 Thing 0: new API\n  handlers: none\n"
    assert handlers_of(35) == []
    assert handlers_of(18) == ["weir.proxy.handlers.api_versions.api_versions"]
    kinds = {row.split("`")[1] for row in PAGE.read_text("utf-8").splitlines() if row.startswith("| `")}
    assert kinds == set(Kind)


@pytest.fixture(scope="module")
def jars() -> Iterator[list[Path]]:
    """The two published jars, downloaded once into the repository's cache."""
    cache = Path(os.environ.get("WEIR_CACHE") or Path(__file__).parents[2] / ".cache").absolute() / "schemas"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield [_fetched(cache, version) for version in ("3.9.1", "4.4.0")]


def _fetched(cache: Path, version: str) -> Path:
    name = f"kafka-clients-{version}.jar"
    if not (cache / name).exists():
        url = f"https://repo1.maven.org/maven2/org/apache/kafka/kafka-clients/{version}/{name}"
        with urllib.request.urlopen(url, timeout=120) as answer:  # https, as one can see
            (cache / "part").write_bytes(answer.read())
        (cache / "part").rename(cache / name)
    return cache / name


@pytest.mark.oracle
def test_the_committed_schemas_equal_those_of_the_published_jars(jars: list[Path], tmp_path: Path) -> None:
    assert compare(jars[1]) == []
    files = generate(*map(read_jar, jars))
    assert check(Path(schema.__file__).parent, files) == 0
    (tmp_path / "schemas").mkdir()
    assert write(tmp_path, files) == 0
    assert check(tmp_path, files) == 0


@pytest.mark.oracle
def test_a_schema_jars_layout_is_found_without_merging(jars: list[Path]) -> None:
    metadata = read_jar(jars[1])[3, "response"]
    brokers = direct_layout(metadata, 9)[1]
    assert brokers[:6] == ("brokers", "MetadataResponseBroker", True, False, True, None)
    assert [place[0] for place in brokers[6]] == ["node_id", "host", "port", "rack"]
