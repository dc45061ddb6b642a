"""The quotas in force: one table for all, and what each broker's clients have used of it.

Byte rates are per broker, as in Kafka: a client has its whole budget at each broker that it talks to.
Mutations are per cluster, for its controller limits them: one budget, whichever listener they come to.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog
import trio

from proxy.config import ConfigError
from quotas import BrokerQuotas, QuotaFileError, QuotaTable, parse
from quotas.budgets import mutation_rates
from quotas.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT

log = structlog.get_logger("weir.quotas")


class QuotaBook:
    """The table and each broker's quotas by node id; `None` stands for a broker whose id is not known yet."""

    def __init__(
        self,
        table: QuotaTable,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        controller_num_samples: int = NUM_SAMPLES_DEFAULT,
        controller_window_s: int = WINDOW_S_DEFAULT,
    ) -> None:
        """The numbers are `quota.window.num` and `quota.window.size.seconds`, and the same two of
        `controller.quota.window`.
        """
        self._table = table
        self._num_samples = num_samples
        self._window_s = window_s
        self._brokers: dict[int | None, BrokerQuotas] = {}
        self.mutations = mutation_rates(controller_num_samples, controller_window_s)
        """The budgets of partition mutations, shared by all brokers."""
        self.mutations.update(table)
        self.on_update: list[Callable[[QuotaTable], None]] = []
        """Called with each further table."""
        self.changes = 0
        """How often another table came into force."""

    @property
    def table(self) -> QuotaTable:
        """What is in force now."""
        return self._table

    @property
    def brokers(self) -> dict[int | None, BrokerQuotas]:
        """Every broker's quotas that a session has asked for."""
        return self._brokers

    def of(self, node_id: int | None) -> BrokerQuotas:
        """Return the quotas of one broker, the same object each time."""
        quotas = self._brokers.get(node_id)
        if quotas is None:
            quotas = self._brokers[node_id] = BrokerQuotas.create(
                self._table, self._num_samples, self._window_s, self.mutations
            )
        return quotas

    def update(self, table: QuotaTable) -> None:
        """Put another table in force, also for open connections; what was used stays."""
        self._table = table
        self.changes += 1
        self.mutations.update(table)
        for quotas in self._brokers.values():
            quotas.update(table)
        for call in self.on_update:
            call(table)

    def expire(self, now_ms: int) -> int:
        """Forget budgets that were not used for an hour; return how many."""
        return sum(quotas.expire(now_ms) for quotas in self._brokers.values())


def read_quota_file(path: Path | None) -> QuotaTable:
    """Read a quota file; none means no quotas. Raises ConfigError: one line with file, place and remedy."""
    if path is None:
        return QuotaTable()
    try:
        return parse(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the quota file: {error.strerror}") from None
    except (QuotaFileError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


async def reload_quota_file(path: Path, book: QuotaBook) -> bool:
    """Put the file's quotas in force; a bad file leaves the old ones and is logged. Return if it was good.

    It is read in a thread: 100,000 entries take seconds, and sessions go on meanwhile.
    """
    try:
        table = await trio.to_thread.run_sync(read_quota_file, path)
    except ConfigError as error:
        log.error("quota file not loaded, the old quotas stay in force", reason=str(error))
        return False
    if table != book.table:
        book.update(table)
        log.info("quota file loaded", file=str(path), quotas=len(table))
    return True
