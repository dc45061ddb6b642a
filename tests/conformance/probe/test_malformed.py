"""Malformed requests: each has one fault, and the fault that its class names."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import pytest
from kio.serial import entity_reader

from tests.conformance.probe.bases import (
    base,
    class_of,
    malformed_cases,
    offered,
    place_of,
    well_formed_by_name,
)
from tests.matrix import check_each
from tests.protocol.kio_side import kio_class
from weir.conformance.probe.case import Case, CaseOutcome
from weir.conformance.probe.malformed.classes import CLASSES, ClassGroup, Expected
from weir.conformance.probe.malformed.marks import MarkKind, mark
from weir.conformance.probe.malformed.versions import version_cases
from weir.conformance.probe.requests import HARMFUL
from weir.protocol.api import ApiKey
from weir.protocol.framing import LENGTH
from weir.protocol.versions import VersionRange

if TYPE_CHECKING:
    from collections.abc import Iterator

BY_NAME: Final = {cls.name: cls for cls in CLASSES}
BODY: Final = {ClassGroup.TRUNCATED, ClassGroup.LENGTH, ClassGroup.NULL, ClassGroup.TAG, ClassGroup.VALUE}

KIO_REFUSES: Final = {
    "array-beyond": {"BufferUnderflow", "UnexpectedNull", "KeyError", "ValueError"},
    "string-beyond": {"BufferUnderflow"},
    "string-huge": {"BufferUnderflow"},
    "bytes-beyond": {"BufferUnderflow"},
    "string-null": {"UnexpectedNull"},
    "bytes-null": {"UnexpectedNull"},
    "truncated": {"BufferUnderflow"},
    "truncated-within": {"BufferUnderflow"},
    "varint-long": {"ValueError"},
    "bool-2": {"ValueError"},
    "not-utf-8": {"InvalidUnicode"},
    "tags-missing": {"BufferUnderflow", "KeyError", "ValueError"},
}
"""Class → errors of kio for its requests. kio reads null arrays as well, and no unknown tags."""
KIO_READS: Final = {"varint-padded", "byte-by-byte"}
"""Classes whose requests kio reads like the well-formed ones."""


def of_group(*groups: ClassGroup) -> list[Case]:
    return [
        case
        for case in malformed_cases()
        if (name := class_of(case)) and BY_NAME[name].group in groups and base(case) is not None
    ]


def well_formed_of(case: Case) -> Case:
    found = base(case)
    assert found is not None
    return found


def test_a_malformed_body_differs_from_the_well_formed_one_at_the_named_field_only() -> None:
    def check(case: Case) -> None:
        frame, data = well_formed_of(case).data, case.data
        assert LENGTH.unpack_from(data)[0] == len(data) - 4
        if class_of(case) == "trailing":
            assert data[4:].startswith(frame[4:])
            return
        places = [found for found in mark(frame).marks if found.path == place_of(case)]
        assert any(data[4 : found.start] == frame[4 : found.start] for found in places)
        if BY_NAME[class_of(case)].group is not ClassGroup.TRUNCATED:
            assert any(data.endswith(frame[found.end :]) for found in places)
        assert data != frame

    check_each(of_group(*BODY), check, name=lambda case: case.name)


def read_by_kio(case: Case, data: bytes) -> tuple[Any, int]:
    """kio's value of the request in a frame, and the number of body bytes that it leaves."""
    body = data[mark(well_formed_of(case).data).body :]
    value, size = entity_reader(kio_class(case.api_key, "request", case.version))(body, 0)
    return value, len(body) - size


def known_to_kio(*names: str) -> Iterator[Case]:
    for case in of_group(*ClassGroup):
        if class_of(case) in names and kio_class(case.api_key, "request", case.version) is not None:
            yield case


def test_kio_refuses_the_malformed_requests_for_the_reason_of_their_class() -> None:
    def check(case: Case) -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # an error class of kio or a built-in one
            read_by_kio(case, case.data)
        assert type(caught.value).__name__ in KIO_REFUSES[class_of(case)]

    cases = list(known_to_kio(*KIO_REFUSES))
    check_each(cases, check, name=lambda case: case.name)
    assert {class_of(case) for case in cases} == KIO_REFUSES.keys()


def test_kio_reads_the_well_formed_requests_and_those_with_needless_bytes() -> None:
    def check(case: Case) -> None:
        value, left = read_by_kio(case, well_formed_of(case).data)
        assert left == 0
        assert read_by_kio(case, case.data) == (value, _left(case))

    check_each(list(known_to_kio(*KIO_READS, "trailing")), check, name=lambda case: case.name)


def _left(case: Case) -> int:
    return int(place_of(case).split("-")[0]) if class_of(case) == "trailing" else 0


def test_every_group_that_fits_occurs_in_each_api_and_every_class_in_some() -> None:
    groups: defaultdict[int, set[ClassGroup]] = defaultdict(set)
    fitting: defaultdict[int, set[ClassGroup]] = defaultdict(set)
    for case in of_group(*ClassGroup):
        groups[case.api_key].add(BY_NAME[class_of(case)].group)
        marked = mark(well_formed_of(case).data)
        fitting[case.api_key] |= {ClassGroup.FRAME, ClassGroup.HEADER, ClassGroup.VALUE, ClassGroup.PACE}
        fitting[case.api_key] |= {ClassGroup.TRUNCATED} if marked.marks[-1].start >= marked.body else set()
        sized = marked.of(MarkKind.STRING, MarkKind.BYTES, MarkKind.ARRAY)
        fitting[case.api_key] |= {ClassGroup.LENGTH} if any(not found.nullable for found in sized) else set()
        fitting[case.api_key] |= {ClassGroup.NULL} if any(not found.nullable for found in sized) else set()
        fitting[case.api_key] |= {ClassGroup.TAG} if marked.of(MarkKind.TAGS) else set()
    assert groups.keys() == {case.api_key for case in well_formed_by_name().values()}
    assert {key: fitting[key] - groups[key] for key in groups if fitting[key] - groups[key]} == {}
    assert {class_of(case) for case in malformed_cases()} - {""} == BY_NAME.keys()


def test_a_version_with_fields_has_ten_to_fifteen_malformed_requests() -> None:
    counts = Counter((case.api_key, case.version) for case in of_group(*ClassGroup))
    with_strings = {
        (case.api_key, case.version)
        for case in well_formed_by_name().values()
        if case.name.endswith("maximal") and mark(case.data).of(MarkKind.STRING, MarkKind.ARRAY)
    }
    assert max(counts.values()) <= 15
    assert [key for key in with_strings if counts[key] < 10] == []


def test_names_are_unique_and_a_seed_repeats_its_requests() -> None:
    first, other = malformed_cases(), malformed_cases(seed=1)
    assert len({case.name for case in first}) == len(first)
    malformed_cases.cache_clear()
    assert malformed_cases() == first
    assert {case.name for case in other} != {case.name for case in first}


def test_apis_without_a_harmless_request_get_no_request_that_a_target_could_execute() -> None:
    cases = [case for case in malformed_cases() if case.api_key in HARMFUL and class_of(case)]
    assert {case.api_key for case in cases} == HARMFUL.keys()
    for case in cases:
        cls = BY_NAME[class_of(case)]
        assert cls.group in (ClassGroup.FRAME, ClassGroup.HEADER)
        assert cls.expected in (Expected.CLOSED, Expected.REFUSED)


def test_requests_that_change_settings_keep_their_values() -> None:
    changed = {class_of(case) for case in malformed_cases() if case.api_key == ApiKey.ELECT_LEADERS}
    assert changed.isdisjoint(cls.name for cls in CLASSES if cls.changes_values)


def test_versions_around_the_offered_range_and_unknown_apis_are_requested() -> None:
    cases = {case.name: case for case in malformed_cases() if not class_of(case)}
    above = cases["Metadata/version-above"]
    assert LENGTH.unpack_from(above.data)[0] == len(above.data) - 4
    assert above.data[4:8] == (3).to_bytes(2) + (offered()[3].max + 1).to_bytes(2)
    assert cases["Metadata/version-below"].data[6:8] == b"\xff\xff"
    negotiation = cases["ApiVersions/version-above"]
    assert (negotiation.version, negotiation.permitted) == (0, frozenset({CaseOutcome.ERROR}))
    assert negotiation.errors == frozenset({35})
    assert cases["API 999/unknown-api"].permitted == {CaseOutcome.CLOSED}


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.METADATA])
def test_versions_above_those_of_a_target_newer_than_the_schemas_have_the_header_of_the_last_known(
    api_key: int,
) -> None:
    """A flexible API stays flexible (KIP-482): a broker cannot read a header without its tagged fields."""
    last = offered()[api_key].max
    (_below, above, *_unknown) = version_cases({api_key: VersionRange(0, last + 1)})
    assert above.data[6:8] == (last + 2).to_bytes(2)
    client_id_end = 14 + int.from_bytes(above.data[12:14])
    assert above.data[client_id_end:] == b"\0"
