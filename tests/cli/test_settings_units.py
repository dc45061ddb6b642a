"""Sizes and durations with units in the configuration file and in options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.quotas_command import done
from tests.cli.run_command import refused
from weir.proxy.config import config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Misused

FILE = '[[quota]]\nuser = "alice"\nproducer_byte_rate = "1MB"  # hers\nconsumer_byte_rate = "2MiB"\n'


def test_a_configuration_file_may_give_sizes_and_durations_with_units(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text(
        'upstream = "a:1"\ndrain_timeout_s = "5m"\nrefresh_s = "500ms"\nfirst_request_hold_ms_max = "2s"\n'
        'frame_bytes_max = "1MB"\nusage_keep_bytes = "1GiB"\nquota_window_size_seconds = "2s"\n'
    )
    settings = config.load(file, {}).settings
    assert (settings.drain_timeout_s, settings.refresh_s) == (300.0, 0.5)
    assert settings.first_request_hold_ms_max == 2000
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


def test_an_option_that_is_no_duration_is_refused_with_an_example(misused: Misused) -> None:
    line = misused("run", "--refresh-s", "5x")
    assert "'--refresh-s': '5x' is not a number of seconds, or a duration such as 500ms" in line


def test_changing_one_quota_keeps_the_units_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text(FILE)
    done("set", "--quotas", str(file), "--user", "alice", "consumer_byte_rate=3MiB")
    assert file.read_text() == FILE.replace('"2MiB"', "3145728")
