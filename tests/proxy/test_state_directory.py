"""The state directory: files are written when they change; what cannot be read or written is logged once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.proxy.state_files import keep_once
from weir.proxy.addresses import Address, AddressBook, PortRange
from weir.proxy.config.config import load
from weir.proxy.control.cluster.broker_map import BROKERS_MAX, BYTES_MAX, BrokerMap
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.state_directory import Put, StateDirectory, state_directory
from weir.proxy.control.stores.snapshot import Snapshot
from weir.proxy.control.used_units_file import UsedUnitsFile
from weir.quotas import QuotaTable

READERS: dict[str, Callable[[StateDirectory], object]] = {
    "brokers.json": lambda state: BrokerMap(
        state, [Address("a", 1)], AddressBook(PortRange(9100, 9199), lambda _node_id, _port: None)
    ).read(),
    "last-quotas.toml": lambda state: Snapshot(state).read().values,
    "used-units.json": lambda state: UsedUnitsFile(state, QuotaRegistry(QuotaTable()), lambda: 0).read(),
}
"""What each of the files says, by its name."""


@dataclass
class Text:
    """A file whose content a test changes."""

    content: bytes = b"1"
    saved: bytes = b""
    name: str = "text"
    period_s: float = 1.0

    async def save(self, put: Put) -> None:
        if self.content != self.saved and await put(self.content):
            self.saved = self.content


def broker(node_id: int = 1, host: str = "a", port: int = 1) -> dict[str, object]:
    return {"node_id": node_id, "host": host, "port": port}


def brokers(*found: dict[str, object]) -> bytes:
    return json.dumps({"brokers": found}).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, content) for name in READERS for content in (b"{", b"[1]", b"\xff\xfe", b"[" * 100_000)),
        ("brokers.json", b""),
        ("brokers.json", b'{"brokers": 5}'),
        ("brokers.json", brokers(broker(node_id=-1))),
        ("brokers.json", brokers(broker(host=""))),
        ("brokers.json", brokers(broker(port=65536))),
        ("brokers.json", b" " * (BYTES_MAX + 1)),
        ("brokers.json", brokers(*map(broker, range(BROKERS_MAX + 1)))),
        ("used-units.json", b""),
        ("used-units.json", b"{}"),
        ("used-units.json", b'{"at_s": 1, "used": [[]]}'),
        ("used-units.json", b'{"at_s": 1e300, "used": []}'),
    ],
)
def test_a_damaged_state_file_is_logged_and_ignored(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with capture_logs() as lines:
        assert not READERS[name](StateDirectory(tmp_path))
    (line,) = [line for line in lines if line["event"] == "state file ignored"]
    assert line["file"] == str(path)
    assert "\n" not in line["reason"]
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", READERS)
def test_a_missing_state_file_is_an_empty_one(tmp_path: Path, name: str) -> None:
    with capture_logs() as lines:
        assert not READERS[name](StateDirectory(tmp_path / "none"))
        assert not READERS[name](StateDirectory(None))
    assert [line for line in lines if line["event"] == "state file ignored"] == []


@pytest.mark.trio
async def test_state_files_and_their_directory_are_made_for_weirs_user_alone(tmp_path: Path) -> None:
    await keep_once(tmp_path / "state", Text())
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "state", tmp_path / "state/text")]
    assert modes == [0o700, 0o600]


@pytest.mark.trio
async def test_an_unwritable_state_file_is_logged_once_and_so_is_its_end(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path, text = tmp_path / "state", Text()
    path.touch()
    looks = 0

    def works() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            path.unlink()
        elif text.saved:
            scope.cancel()

    with capture_logs() as lines, trio.CancelScope() as scope:
        await StateDirectory(path).keep(text, works)
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("state file not written", "error"),
        ("state file written again", "info"),
    ]
    assert (path / "text").read_bytes() == b"1"
    assert lines[0]["reason"] == "Not a directory"


@pytest.mark.trio
async def test_a_weir_that_has_handed_over_writes_no_state_file(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    state, text = StateDirectory(tmp_path), Text()

    def works() -> None:
        state.abandon()
        text.content = b"2"

    await state.keep(text, works)
    assert (tmp_path / "text").read_bytes() == b"1"


def test_the_state_directory_is_that_of_systemd_by_default() -> None:
    def path(environment: dict[str, str], **options: str) -> Path | None:
        settings = load(None, {"upstream": "kafka:9092", **options}).settings
        return state_directory(settings, environment).path

    of_systemd = {"STATE_DIRECTORY": "/var/lib/weir:/var/lib/other"}
    assert path({}) is None
    assert path(of_systemd) == Path("/var/lib/weir")
    assert path(of_systemd, state_dir="/data") == Path("/data")
