"""Changed settings come into force without a restart; those that cannot are named in the log."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from tests.proxy.worker_rigs import running_worker
from weir.proxy import logs
from weir.proxy.config import config
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.server.reload import RELOADED, Reload
from weir.proxy.server.server import Server
from weir.proxy.workers.messages import Flush, Flushed, SettingsChanged
from weir.quotas import QuotaTable


class Running:
    """A server that does not serve, its configuration file, and the modes that quotas were put in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("")
        self.server = Server(self.load(), QuotaRegistry(QuotaTable()))
        self.modes: list[bool] = []
        self.reload = Reload(self.server, self.load, self._set_mode)

    def write(self, text: str) -> None:
        self.path.write_text(f'upstream = "a:1"\n{text}')

    def load(self) -> config.Config:
        return config.load(self.path, {"listen": ":9092"})

    async def reloaded(self, text: str) -> list[dict[str, object]]:
        self.write(text)
        with capture_logs() as lines:
            await self.reload.reload()
        return [dict(line) for line in lines]

    async def _set_mode(self, in_shadow: bool) -> None:
        self.modes.append(in_shadow)


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path / "weir.toml")


def test_every_setting_that_can_be_reloaded_exists() -> None:
    assert set(config.Settings.__struct_fields__) >= RELOADED


@pytest.mark.trio
async def test_changed_limits_come_into_force_and_are_logged(running: Running) -> None:
    lines = await running.reloaded("connections_max = 7\nbuffered_bytes_max = 1000\nthrottle_ms_max = 5")
    settings = running.server.config.settings
    assert (settings.connections_max, settings.throttle_ms_max) == (7, 5)
    assert lines == [
        {
            "event": "configuration loaded",
            "log_level": "info",
            "connections_max": 7,
            "buffered_bytes_max": 1000,
            "throttle_ms_max": 5,
        }
    ]
    assert await running.reloaded("connections_max = 7\nbuffered_bytes_max = 1000\nthrottle_ms_max = 5") == []


@pytest.mark.trio
async def test_a_worker_uses_changed_limits_for_new_connections() -> None:
    async with running_worker() as rig:
        limiter, settings = rig.worker.limiter, rig.worker.plane.config.settings
        assert limiter.enter(None, "10.0.0.1") is None
        changed = msgspec.structs.replace(settings, max_connections_per_ip="1", buffered_bytes_max=1000)
        rig.link.post(SettingsChanged(changed))
        rig.link.post(Flush(1))
        await rig.hear(Flushed)
        assert limiter.enter(None, "10.0.0.1") is not None
        assert rig.reactor.buffered.bytes_max == 1000


@pytest.mark.trio
async def test_connection_rates_are_put_in_force(running: Running) -> None:
    quotas = running.server.quotas.connections
    await running.reloaded("max_connection_creation_rate = 1")
    assert [quotas.arrive(None, 0) for _ in range(11)][-2:] == [0, 1000]
    await running.reloaded("")
    assert quotas.arrive(None, 0) == 0


@pytest.mark.trio
async def test_the_quota_mode_is_put_in_force(running: Running) -> None:
    await running.reloaded('quota_mode = "shadow"')
    await running.reloaded("")
    assert running.modes == [True, False]


@pytest.mark.trio
async def test_the_log_level_is_put_in_force(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[str] = []
    monkeypatch.setattr(logs, "configure", levels.append)
    await running.reloaded('log_level = "debug"')
    assert levels == ["debug"]


@pytest.mark.trio
async def test_settings_that_need_a_restart_are_named_once_and_not_used(running: Running) -> None:
    (line,) = await running.reloaded("refresh_s = 3\nuplift = false")
    assert line == {
        "event": "changed settings need a restart",
        "log_level": "warning",
        "settings": ["refresh_s", "uplift"],
    }
    assert running.server.config.settings.uplift
    assert await running.reloaded("refresh_s = 3\nuplift = false") == []


@pytest.mark.trio
async def test_a_mistake_in_the_configuration_leaves_the_old_one_in_force(running: Running) -> None:
    (line,) = await running.reloaded("connections_max = 0")
    assert line["event"] == "configuration not loaded, the old one stays in force"
    assert "connections_max is 0" in str(line["reason"])
    assert running.server.config.settings.connections_max == 20_000
    (line,) = await running.reloaded("")
    assert line["event"] == "configuration can be read again"


@pytest.mark.trio
async def test_an_error_while_the_configuration_is_read_ends_no_task(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> config.Config:
        raise RuntimeError("a bug")

    monkeypatch.setattr(config, "load", fail)
    (line,) = await running.reloaded("connections_max = 7")
    assert line["log_level"] == "error"
    assert running.server.config.settings.connections_max == 20_000


@pytest.mark.trio
async def test_an_older_configuration_that_is_read_slowly_does_not_replace_a_newer_one(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, read_old, go_on = config.load, threading.Event(), threading.Event()

    def slowly(path: Path, options: dict[str, object]) -> config.Config:
        found = load(path, options)
        if found.settings.connections_max == 1:
            read_old.set()
            go_on.wait(10)
        return found

    monkeypatch.setattr(config, "load", slowly)
    running.write("connections_max = 1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.reload.reload)
        await trio.to_thread.run_sync(read_old.wait)
        running.write("connections_max = 2")
        nursery.start_soon(running.reload.reload)
        await wait_all_tasks_blocked(0.2)
        go_on.set()
    assert running.server.config.settings.connections_max == 2
