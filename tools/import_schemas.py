"""Write protocol/schemas/ and protocol/messages.pyi from the message schemas of two kafka-clients jars.

    python -m tools.import_schemas OLD.jar NEW.jar
    python -m tools.import_schemas --compare NEW.jar

OLD is the last release that still has every version from 0 (3.9.1), NEW the newest one; both are on Maven
Central (https://repo1.maven.org/maven2/org/apache/kafka/kafka-clients/). Where both know a version they
must agree, unless OLD calls that version unstable: then NEW is right. The result is checked against each
jar, message by message and version by version, before anything is written. `--compare` says what a release
changes on the wire and which handlers of Weir that concerns, and exits 1 if it changes anything.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from tools.compare_schemas import compare, report
from tools.kafka_source import (
    SchemaError,
    SourceField,
    SourceMessage,
    Versions,
    direct_layout,
    places,
    read_jar,
    snake_case,
)
from tools.stubs import stub
from weir.protocol import schema
from weir.protocol.versions import VersionSet

Jar = dict[tuple[int, str], SourceMessage]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.import_schemas", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "jars", nargs="*", type=Path, metavar="OLD.jar NEW.jar", help="kafka-clients 3.9.1, and the newest"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="NEW.jar", help="say what a release changes on the wire"
    )
    options = parser.parse_args(arguments)
    if (options.compare is None) != (len(options.jars) == 2):
        parser.error("needs OLD.jar and NEW.jar, or --compare NEW.jar")
    room = Path(schema.__file__).parent
    try:
        if options.compare is not None:
            changes = compare(options.compare)
            print(report(changes) or "no change on the wire")
            return 1 if changes else 0
        write(room, generate(*map(read_jar, options.jars)))
        return 0
    except SchemaError as error:
        print(f"import_schemas: {error}", file=sys.stderr)
        return 2


def write(room: Path, files: dict[str, str]) -> None:
    """Write `files` (text by path relative to the directory `room`), and delete generated files that are
    missing in `files`.
    """
    for stale in generated(room) - files.keys():
        (room / stale).unlink()
    for name, text in files.items():
        (room / name).write_text(text, encoding="utf-8")
    print(f"{len(files)} files written")


def generated(room: Path) -> set[str]:
    """Return the paths, relative to `room`, of all files that this program has written."""
    stubs = {"messages.pyi"} if (room / "messages.pyi").exists() else set()
    return {f"schemas/{path.name}" for path in (room / "schemas").iterdir()} | stubs


def generate(old: Jar, new: Jar) -> dict[str, str]:
    """Return the generated files as text, by path relative to the package `protocol`. Raises SchemaError if
    the jars or the result are inconsistent.
    """
    files, merged = {}, []
    for api_key in sorted({key for key, _ in old.keys() | new.keys() if key >= 0}):
        request = Merged(old.get((api_key, "request")), new.get((api_key, "request")))
        response = Merged(old.get((api_key, "response")), new.get((api_key, "response")))
        if request.versions != response.versions:
            raise SchemaError(request.name, "", "the response has other versions")
        name = request.name.removesuffix("Request")
        if response.name != name + "Response":
            raise SchemaError(response.name, "", f"not called after {request.name}")
        head = {"api_key": api_key, "name": name}
        files[f"schemas/{api_key:03}_{snake_case(name)}.json"] = _text(head, request, response)
        merged += [request, response]
    headers = [Merged(old[-1, name], new[-1, name]) for name in ("RequestHeader", "ResponseHeader")]
    files["schemas/headers.json"] = _text({}, *headers)
    stored = [(each, each.stored_schema()) for each in headers + merged]
    for each, stored_schema in stored:
        each.verify(stored_schema)
    files["messages.pyi"] = stub([stored_schema for _, stored_schema in stored])
    return files


class Merged:
    """One message merged from both jars: OLD determines every version that it knows, NEW all others."""

    def __init__(self, old: SourceMessage | None, new: SourceMessage | None) -> None:
        self.old, self.new = old, new
        sources = [source for source in (new, old) if source is not None]
        self.name = sources[0].name
        self.kind = sources[0].kind
        self.api_key = sources[0].api_key
        self._in_new = new.versions if new is not None else frozenset()
        self._from_old = old.versions - (old.unstable & self._in_new) if old is not None else frozenset()
        self._from_new = self._in_new - self._from_old
        self.versions = self._from_old | self._from_new
        if len(VersionSet.of(self.versions).ranges) != 1:
            raise SchemaError(self.name, "", f"versions {VersionSet.of(self.versions)} are not one range")
        self.flexible = self._both(*(None if each is None else each.flexible for each in (old, new)))
        self.fields = self._merge(*([] if source is None else source.fields for source in (old, new)))
        structs = [{} if source is None else source.structs for source in (old, new)]
        merged = {
            name: self._merge(*(each.get(name, []) for each in structs)) for name in (structs[1] | structs[0])
        }
        used = self._used(self.fields, merged)
        self.structs = {name: fields for name, fields in merged.items() if name in used}

    def _both(self, old: Versions | None, new: Versions | None) -> Versions:
        return (old or frozenset()) & self._from_old | (new or frozenset()) & self._from_new

    def _both_of(self, key: str, old: SourceField | None, new: SourceField | None) -> Versions:
        return self._both(*(None if field is None else getattr(field, key) for field in (old, new)))

    def _used(self, fields: list[SourceField], structs: dict[str, list[SourceField]]) -> set[str]:
        """Return the structs that a field refers to in any version."""
        found = {field.type for field in fields if field.type in structs}
        return found.union(*(self._used(structs[name], structs) for name in found))

    def _merge(self, old: list[SourceField], new: list[SourceField]) -> list[SourceField]:
        """Return the merged fields in NEW's order; a field that only OLD has stands after the field that
        precedes it in OLD.
        """
        by_name = {field.name: field for field in old}
        merged = [self._field(by_name.get(field.name), field) for field in new]
        known = {field.name for field in new}
        for index, field in enumerate(old):
            if field.name not in known:
                names = [found.name for found in merged]
                place = names.index(old[index - 1].name) + 1 if index else 0
                merged.insert(place, self._field(field, None))
        return [field for field in merged if field.versions]

    def _field(self, old: SourceField | None, new: SourceField | None) -> SourceField:
        newest = new if new is not None else old
        if newest is None:
            raise ValueError("a field of neither jar")
        if old is not None and new is not None:
            for rule in ("type", "is_array", "tag", "default"):
                before, after = getattr(old, rule), getattr(new, rule)
                if before != after:
                    raise SchemaError(self.name, new.name, f"{rule} changed from {before} to {after}")
        return SourceField(
            name=newest.name,
            type=newest.type,
            is_array=newest.is_array,
            versions=self._both_of("versions", old, new),
            nullable=self._both_of("nullable", old, new),
            tagged=self._both_of("tagged", old, new),
            tag=newest.tag,
            default=newest.default,
            ignorable=any(source.ignorable for source in (old, new) if source is not None),
            map_key=newest.map_key,
            entity_type=newest.entity_type,
            flexible=None if newest.flexible is None else self._both_of("flexible", old, new),
        )

    def stored(self) -> dict[str, Any]:
        """Return the message in the form of the schema files."""
        stored: dict[str, Any] = {
            "versions": str(VersionSet.of(self.versions)),
            "flexible": str(VersionSet.of(self.flexible)),
            "fields": [self._stored_field(field) for field in self.fields],
        }
        if self.structs:
            stored["structs"] = {
                name: [self._stored_field(field) for field in fields] for name, fields in self.structs.items()
            }
        return stored

    def _stored_field(self, field: SourceField) -> dict[str, Any]:
        stored: dict[str, Any] = {"name": field.name, "type": "[]" * field.is_array + field.type}
        if field.versions != self.versions:
            stored["versions"] = str(VersionSet.of(field.versions))
        for key, versions in (("nullable", field.nullable), ("tagged", field.tagged)):
            if versions:
                stored[key] = str(VersionSet.of(versions))
        if field.tagged:
            stored["tag"] = field.tag
        if field.default is not msgspec.UNSET:
            stored["default"] = field.default
        for key in ("ignorable", "map_key", "entity_type"):
            if getattr(field, key):
                stored[key] = getattr(field, key)
        if field.flexible is not None:
            stored["flexible"] = str(VersionSet.of(field.flexible))
        return stored

    def stored_schema(self) -> schema.MessageSchema:
        """Return the message's schema as the package `protocol` reads it."""
        kind: schema.Kind = (
            "header" if self.kind == "header" else "request" if self.kind == "request" else "response"
        )
        return schema.parse_message(json.dumps(self.stored()).encode(), self.name, kind, self.api_key)

    def verify(self, stored: schema.MessageSchema) -> None:
        """Compare the layouts of the stored schema with those of each jar, in every version that the jar
        determines. Raises SchemaError if they differ.
        """
        for label, source, versions in (("old", self.old, self._from_old), ("new", self.new, self._in_new)):
            for version in sorted(versions):
                if source is None:
                    continue
                ours, theirs = places(stored.layout(version)), direct_layout(source, version)
                for mine, jars in zip(ours + [None] * len(theirs), theirs + [None] * len(ours), strict=False):
                    if mine != jars:
                        field = str((jars or mine or "?")[0])
                        raise SchemaError(
                            f"{self.name} v{version}", field, f"the {label} jar has {jars}, merged is {mine}"
                        )
                if stored.layout(version).flexible != (version in source.flexible):
                    raise SchemaError(f"{self.name} v{version}", "", "flexible differs")


def _text(head: dict[str, Any], request: Merged, response: Merged) -> str:
    """Return the text of an API's schema file, with one line per field, so that a new release gives a
    readable diff.
    """
    parts = [f"{_json(key)}: {_json(value)}" for key, value in head.items()]
    for key, message in (("request", request), ("response", response)):
        stored = message.stored()
        inner = [f"{_json(name)}: {_json(stored[name])}" for name in ("versions", "flexible")]
        inner.append(f'"fields": {_lines(stored["fields"], 2)}')
        structs = [
            f"{_json(name)}: {_lines(fields, 3)}" for name, fields in stored.get("structs", {}).items()
        ]
        if structs:
            inner.append('"structs": {\n   ' + ",\n   ".join(structs) + "}")
        parts.append(f"{_json(key)}: {{\n  " + ",\n  ".join(inner) + "}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _lines(fields: list[dict[str, Any]], depth: int) -> str:
    indent = "\n" + " " * (depth + 1)
    return "[" + ",".join(indent + _json(field) for field in fields) + "]"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
