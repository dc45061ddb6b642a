"""What the configuration says of request time: read, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.proxy.config import config
from weir.proxy.config.config import ConfigError
from weir.proxy.config.request_costs import FILE_BYTES_MAX, RequestTimeRules, request_time_rules
from weir.proxy.config.settings import Settings
from weir.quotas.costs.request_costs import ApiCost

COSTS = "[apis.Produce]\nus = 20.5\n"


def rules(scale: str = "1", costs: str = "") -> RequestTimeRules:
    return request_time_rules(Settings(upstream="a:1", request_time_scale=scale, request_costs=costs))


def refused(scale: str = "1", costs: Path | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        rules(scale, "" if costs is None else str(costs))
    text = str(error.value)
    assert text.isprintable()
    assert len(text) < 500
    return text


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-1", "nan", "inf", "-inf", "1000.1", "1e400", "x", "1,2", "9" * 5000),
        *("=", "1=", "=1", "1==2", "1=0", "1=nan", "1=inf", "1=-1", "a=1", "1.5=1", "nan=1"),
        *("-1=1", "2147483648=1", f"{'9' * 5000}=1", "1=1,2=1", "1:0.8"),
        *("1=1;1=1", "1;1", "1;1=2;2", "1=0.8;\n\x1b[31m"),
    ],
    ids=lambda text: text[:20],
)
def test_an_invalid_request_time_scale_is_refused(text: str) -> None:
    said = refused(text)
    assert said.startswith("request_time_scale is '")
    assert said.endswith(
        "must be a factor above 0, at most 1000, or NODE=FACTOR[;NODE=FACTOR...], such as 1=0.8;2=1.25, "
        "each once"
    )


def test_the_request_cost_files_path_is_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text(COSTS)
    (tmp_path / "weir.toml").write_text(
        'upstream = "a:1"\nrequest_costs = "costs.toml"\nrequest_time_scale = "2"\n'
    )
    loaded = config.load(tmp_path / "weir.toml", {})
    assert loaded.request_time.costs.apis == {"Produce": ApiCost(us=20.5)}
    assert loaded.request_time.scale == 2.0


def test_an_unreadable_request_cost_file_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert refused(costs=missing) == f"{missing}: cannot read request_costs: No such file or directory"
    assert (
        refused(costs=tmp_path)
        == f"{tmp_path}: cannot read request_costs: it is a directory: give a regular file"
    )
    with pytest.raises(ConfigError, match="cannot read request_costs: its path has a NUL character"):
        rules(costs="\x00")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    assert refused(costs=large) == f"{large}: cannot read request_costs: it is larger than 1048576 bytes"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"us\n", "not valid TOML"),
        (b"[apis.Produce]\nus = nan\n", "apis.Produce.us: Expected `float` >= 0.0; correct it"),
        (b"[apis.produce]\nus = 1\n", 'Kafka has no API "produce"; did you mean Produce?'),
        (b"[apis.Produce]\nus = " + b"9" * 5000, "not valid TOML"),
    ],
    ids=["no TOML", "no number", "no API", "huge number"],
)
def test_an_invalid_request_cost_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "costs.toml"
    path.write_bytes(content)
    said = refused(costs=path)
    assert said.startswith(f"{path}: request_costs")
    assert words in said
