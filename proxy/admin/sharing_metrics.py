"""List the metrics of quotas that are shared with other Weirs."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from weir.proxy.admin.exposition import WEIR
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.quotas.sharing.blindness import Sight
from weir.quotas.sharing.others import REASONS


def families(sharing: UsageSharing) -> Iterator[Metric]:
    yield WEIR.counter(
        "share_units",
        "Units charged to shared quotas, by own clients and by those of other Weirs.",
        {"own": sharing.own.units, "others": sharing.limiters.others_units},
        "from",
    )
    yield WEIR.gauge(
        "share_staleness_seconds",
        "Time from sending an own report of usage to reading it back.",
        sharing.staleness_ms() / 1000,
    )
    yield WEIR.gauge("share_weirs", "Weirs heard within ten seconds, this one included.", sharing.weirs)
    yield WEIR.gauge(
        "share_available",
        "0 while reports of usage do not get through.",
        sharing.blindness.sight in (Sight.CLEAR, Sight.STARTING),
    )
    yield WEIR.counter(
        "share_reports_unsent", "Own reports of usage dropped because the topic is away.", sharing.unsent
    )
    yield WEIR.counter(
        "share_ignored",
        "Reports and usages of others that were not charged.",
        {reason: sharing.ignored[reason] for reason in REASONS} | {"waiting": sharing.limiters.dropped},
        "reason",
    )
