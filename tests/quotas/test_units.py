"""Sizes and durations with units; MB is 10^6 and MiB 2^20, as in IEC 80000-13 and Prometheus's docs."""

from __future__ import annotations

import pytest

from weir.quotas import Entity, QuotaFileError, QuotaKey
from weir.quotas import parse as parse_quotas
from weir.quotas.units import parse, unit_of


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1048576", "bytes", 1048576),
        ("1MB", "bytes", 1_000_000),
        ("1 MB", "bytes", 1_000_000),
        ("1MiB", "bytes", 1_048_576),
        ("256KiB", "bytes", 262_144),
        ("256kib", "bytes", 262_144),
        ("10B", "bytes", 10),
        ("1.1M", "bytes", 1_100_000),
        ("2TB", "bytes", 2_000_000_000_000),
        ("30", "s", 30),
        ("30s", "s", 30),
        ("500ms", "s", 0.5),
        ("5m", "s", 300),
        ("1h", "s", 3600),
        ("500ms", "ms", 500),
        ("1.5s", "ms", 1500),
        ("5m", "ms", 300_000),
        (".5", "", 0.5),
    ],
)
def test_a_quantity_with_a_unit_is_a_number_in_the_unit_of_its_key(
    text: str, unit: str, value: float
) -> None:
    found = parse(text, unit)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", "bytes"),
        ("-1", "bytes"),
        ("1e6", "bytes"),
        ("nan", "bytes"),
        ("1X", "bytes"),
        ("1s", "bytes"),
        ("MB", "bytes"),
        ("1M", "s"),
        ("1MB", "s"),
        ("5S", "s"),
        ("5 minutes", "ms"),
        ("9" * 5000, "ms"),
        ("1K", ""),
    ],
)
def test_text_that_is_no_quantity_is_refused_with_examples(text: str, unit: str) -> None:
    with pytest.raises(ValueError, match=r"such as|a plain number"):
        parse(text, unit)


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("frame_bytes_max", "bytes"),
        ("usage_keep_bytes", "bytes"),
        ("drain_timeout_s", "s"),
        ("quota_window_size_seconds", "s"),
        ("throttle_ms_max", "ms"),
        ("connections_max", None),
        ("quotas", None),
    ],
)
def test_the_name_of_a_setting_says_its_unit(key: str, unit: str | None) -> None:
    assert unit_of(key) == unit


def test_a_quota_file_may_give_byte_rates_with_units() -> None:
    table = parse_quotas('[[quota]]\nuser = "a"\nproducer_byte_rate = "1MB"\nconsumer_byte_rate = "256KiB"\n')
    alice = Entity("a")
    assert dict(table.values) == {
        (alice, QuotaKey.PRODUCER_BYTE_RATE): 1_000_000,
        (alice, QuotaKey.CONSUMER_BYTE_RATE): 262_144,
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            'producer_byte_rate = "1 XB"',
            r'entry 1 \(line 3\): producer_byte_rate must be .*such as .*1MB.*, not "1 XB"',
        ),
        ('producer_byte_rate = "0MB"', 'must be above 0, not "0MB"'),
        ('producer_byte_rate = "1.5B"', 'must be a whole number of bytes/s, not "1.5B"'),
        ('request_percentage = "1K"', 'request_percentage must be a percentage .*, not "1K"'),
    ],
)
def test_a_byte_rate_that_cannot_be_read_is_named_with_its_line(line: str, words: str) -> None:
    with pytest.raises(QuotaFileError, match=words):
        parse_quotas(f'[[quota]]\nuser = "a"\n{line}\n')
