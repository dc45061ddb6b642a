"""Sizes and durations with units in the configuration file and in options."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.cli.conftest import Misused
from tests.cli.quotas_command import done
from tests.cli.run_command import refused
from weir.cli.pipeline.command import pipeline
from weir.proxy.config import config

FILE = '[[quota]]\nuser = "alice"\nproducer_byte_rate = "1MB"  # hers\nconsumer_byte_rate = "2MiB"\n'


def test_a_configuration_file_may_give_sizes_and_durations_with_units(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text(
        'upstream = "a:1"\ndrain_timeout_s = "5m"\nrefresh_s = "500ms"\nthrottle_ms_max = "2s"\n'
        'frame_bytes_max = "1MB"\nusage_keep_bytes = "1GiB"\nquota_window_size_seconds = "2s"\n'
    )
    settings = config.load(file, {}).settings
    assert (settings.drain_timeout_s, settings.refresh_s) == (300.0, 0.5)
    assert settings.throttle_ms_max == 2000
    assert (settings.frame_bytes_max, settings.usage_keep_bytes) == (1_000_000, 1 << 30)
    assert settings.quota_window_size_seconds == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('refresh_s = "5x"', "refresh_s is '5x', must be a number of seconds, or a duration such as"),
        ('frame_bytes_max = "1 MX"', "frame_bytes_max is '1 MX', must be a number of bytes, such as"),
        ('quota_window_size_seconds = "500ms"', "quota_window_size_seconds is 0.5, must be a whole number"),
        ('usage_interval_ms = "2h"', "usage_interval_ms is 7200000, must be 100 to 3600000"),
    ],
)
def test_a_quantity_that_cannot_be_read_is_named_with_an_example(
    tmp_path: Path, line: str, words: str
) -> None:
    file = tmp_path / "weir.toml"
    file.write_text(f"{line}\n")
    assert f"{file}: {words}" in refused("--config", str(file))


def test_changing_one_quota_keeps_the_units_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text(FILE)
    done("set", "--quotas", str(file), "--user", "alice", "consumer_byte_rate=3MiB")
    assert file.read_text() == FILE.replace('"2MiB"', "3145728")


@pytest.mark.parametrize(
    ("job", "option", "written", "name", "expected"),
    [
        ("ingest", "--every", "30s", "every_s", 30),
        ("ingest", "--every", "0", "every_s", 0),
        ("ingest", "--batch-bytes", "256MiB", "batch_bytes", 256 << 20),
        ("rollup", "--window-seconds", "1m", "window_s", 60),
        ("replay", "--patience-s", "2m", "patience_s", 120),
    ],
)
def test_options_of_the_pipeline_may_have_units(
    job: str, option: str, written: str, name: str, expected: float
) -> None:
    command = pipeline.get_command(click.Context(pipeline), job)
    assert command is not None
    (parameter,) = [each for each in command.params if option in each.opts]
    assert parameter.name == name
    assert parameter.type_cast_value(click.Context(command), written) == expected


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1500ms", "1500ms is 1.5 s, must be a whole number"),
        ("0", "0 is not in the range >= 1 (s)"),
        ("inf", "inf is not in the range >= 1 (s)"),
        ("nan", "nan is not in the range >= 1 (s)"),
    ],
)
def test_a_window_of_the_pipeline_is_a_whole_number_of_seconds(
    misused: Misused, written: str, words: str
) -> None:
    assert words in misused("pipeline", "rollup", "--lake", "lake", "--window-seconds", written)
