"""Weir with a quota file ends at once: the thread that watches it is told so before it is waited for."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio

import proxy.run
from proxy import config, quota_watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def test_the_file_is_unwatched_when_the_server_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    async def watch(*_paths: Path, stop_event: trio.Event, **_options: object) -> AsyncIterator[object]:
        try:
            while True:
                await trio.sleep(3600)
                yield set()
        finally:
            told.append(stop_event.is_set())

    monkeypatch.setattr(quota_watch, "awatch", watch)
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("")
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        upstream = f"127.0.0.1:{deaf.getsockname()[1]}"
        loaded = config.load(None, {"upstream": upstream, "quotas": str(quotas)})
        with pytest.raises(config.ConfigError, match="no upstream broker can be reached"):
            proxy.run.run(loaded)
    assert told == [True]
