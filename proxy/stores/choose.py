"""Which store: what `quota_store` says."""

from __future__ import annotations

from typing import NamedTuple

from proxy.config import Config
from proxy.config_error import ConfigError
from proxy.stores.file import FileStore
from proxy.stores.store import QuotaStore
from quotas import QuotaTable


class Chosen(NamedTuple):
    """A store, and the quotas to begin with."""

    store: QuotaStore
    table: QuotaTable


def choose(config: Config) -> Chosen:
    """Open the store and read it for the first time, before there is a Trio to run in. Raises ConfigError."""
    kind = config.settings.quota_store
    if kind != "file":
        raise ConfigError(f'quota_store is "{kind}", which is not there yet: use "file"')
    file = FileStore(config.quota_file)
    return Chosen(file, file.start())
