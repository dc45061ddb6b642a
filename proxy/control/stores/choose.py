"""The quota store that `quota_store` selects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import trio

from proxy.config.config import Config
from proxy.config.config_error import ConfigError
from proxy.control.stores.broker import broker_store
from proxy.control.stores.file import FileStore
from proxy.control.stores.snapshot import LastKnown
from proxy.control.stores.store import QuotaStore
from proxy.control.stores.topic import topic_store
from quotas import QuotaTable


class Chosen(NamedTuple):
    """A store, and the first quotas."""

    store: QuotaStore
    table: QuotaTable
    foreign_records: Callable[[], int] = int
    """Returns the number of records that no Weir wrote; 0 unless the store is a topic."""


def choose(config: Config) -> Chosen:
    """Open the store and read it for the first time, before Trio runs. Raises ConfigError."""
    settings = config.settings
    if settings.quota_store == "file":
        if settings.quota_snapshot:
            raise ConfigError("quota_snapshot goes with quota_store = topic or broker: leave it out")
        file = FileStore(config.quota_file)
        return Chosen(file, file.start())
    if config.quota_file is not None:
        raise ConfigError(f"quota_store is {settings.quota_store}: quotas names a file, leave it out")
    snapshot = Path(settings.quota_snapshot) if settings.quota_snapshot else None
    if settings.quota_store == "broker":
        store = LastKnown(broker_store(config), snapshot)
        return Chosen(store, trio.run(store.start))
    topic = topic_store(config)
    store = LastKnown(topic, snapshot)
    return Chosen(store, trio.run(store.start), lambda: topic.foreign)
