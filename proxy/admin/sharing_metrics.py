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
        "Units charged to shared quotas, for this Weir's clients or other Weirs' clients.",
        {"own": sharing.own.units, "others": sharing.limiters.others_units},
        "from",
    )
    yield WEIR.gauge(
        "share_staleness_seconds",
        "Time between sending this Weir's latest report of usage and reading it back.",
        sharing.staleness_ms() / 1000,
    )
    yield WEIR.gauge(
        "share_weirs",
        "Weirs, including this one, whose reports arrived in the last ten seconds.",
        sharing.weirs,
    )
    yield WEIR.gauge(
        "share_available",
        "0 while this Weir's reports of usage do not reach other Weirs.",
        sharing.blindness.sight in (Sight.CLEAR, Sight.STARTING),
    )
    yield WEIR.counter(
        "share_reports_unsent",
        "Reports of usage that this Weir dropped because the topic was unavailable.",
        sharing.unsent,
    )
    yield WEIR.counter(
        "share_ignored",
        "Other Weirs' usage reports, or values in them, that this Weir ignored.",
        {reason: sharing.ignored[reason] for reason in REASONS} | {"waiting": sharing.limiters.dropped},
        "reason",
    )
