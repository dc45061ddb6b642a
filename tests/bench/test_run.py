"""The benchmark as a whole, with little load and no Kafka behind it: it must not rot."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
OURS = "direct,weir"
ROWS = "produce-500kb,fetch-100b,replica-100-small"
"""One of the part with TLS, one of that with SASL, one of replication. `test_canned` asks for all of them."""


def command(json_file: Path, *options: str) -> list[str]:
    little = ["--broker", "canned", "--hurry", "--rounds", "1", "--seconds", "0.05", "--idle", "20"]
    return [sys.executable, "-m", "bench", *little, "--targets", OURS, "--json", str(json_file), *options]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the benchmark keeps its files, to see what it leaves behind."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.mark.slow
def test_every_part_of_the_benchmark_gives_figures(tmp_path: Path, scratch: Path) -> None:
    file = tmp_path / "results.json"
    done = subprocess.run(
        command(file, "--rows", ROWS), cwd=TREE, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    kept = json.loads(file.read_text())
    assert {cell["target"] for cell in kept["cells"]} == set(OURS.split(","))
    assert len(kept["cells"]) == 2 * 2
    assert len(kept["entities"]) == 2 * 2
    assert [(cell["row"], cell["target"]) for cell in kept["tls"]] == [("produce-500kb", "weir")]
    assert {(cell["row"], cell["target"]) for cell in kept["sasl"]} == {
        ("fetch-100b", "weir-plain"),
        ("fetch-100b", "weir-sasl"),
    }
    assert {(cell["row"], cell["target"]) for cell in kept["replication"]} == {
        ("replica-100-small", target) for target in ("direct", "weir", "weir-replication", "weir-throttled")
    }
    assert set(kept["idle"]) == {"weir"}
    parts = ("cells", "tls", "sasl", "replication", "entities")
    for cell in [cell for part in parts for cell in kept[part]]:
        (figures,) = cell["rounds"]
        assert figures["requests"] > 0, cell
        assert (figures["cpu_us"] is None) == (cell["target"] == "direct"), cell
    assert done.stdout.count("| load |") == 13
    assert "| idle connections |" in done.stdout
    assert list(scratch.iterdir()) == []


def test_sigterm_ends_the_benchmark_and_its_processes(tmp_path: Path, scratch: Path) -> None:
    """Ended while a load runs: that is when there is most to clean up."""
    order = command(tmp_path / "none.json", "--parts", "rows", "--rows", "metadata-1", "--seconds", "60")
    pipe = subprocess.PIPE
    with subprocess.Popen(order, cwd=TREE, stdout=pipe, stderr=pipe, text=True) as child:
        try:
            assert child.stderr is not None
            while not (said := child.stderr.readline()).startswith("round 1"):
                assert said, f"ended by itself with {child.wait()}"
            child.send_signal(signal.SIGTERM)
            _, rest = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 130, rest
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--rows", "nonsense"], "nonsense; known: metadata-1"), (["--parts", "x"], "x; known: rows")],
)
def test_an_unknown_name_is_refused_with_exit_code_2(tmp_path: Path, options: list[str], told: str) -> None:
    done = subprocess.run(
        command(tmp_path / "none.json", *options), cwd=TREE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert told in done.stderr
