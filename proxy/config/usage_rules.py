"""Usage-recording settings, checked: destination, interval, retention."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.config.config_error import ConfigError
from proxy.connection.usage_registries import UsageRegistries

if TYPE_CHECKING:
    from proxy.config.settings import Settings

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
ROTATE_BYTES_MIN: Final = 4096
"""Smaller files would be a burden for readers that list the directory."""


@dataclass(frozen=True, slots=True)
class UsageRules:
    """How usage is recorded."""

    directory: Path | None
    topic: str
    """Empty if usage is written to a directory."""
    interval_ms: int
    rotate_s: float
    rotate_bytes: int
    keep_bytes: int
    """Limit (bytes) on finished files in the directory; 0: no limit."""
    queue_records: int
    entities_max: int
    trace_share: float

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics of usage records and of traces, if usage is written to topics."""
        return frozenset((self.topic, f"{self.topic}-trace") if self.topic else ())

    def registries(self) -> UsageRegistries:
        """Return empty usage registries."""
        return UsageRegistries(
            entities_max=self.entities_max, trace_share=self.trace_share, traces_max=self.queue_records
        )


def usage_rules(settings: Settings) -> UsageRules | None:
    """Check the settings; return None if nothing is recorded. Raises ConfigError."""
    _check_numbers(settings)
    if not settings.usage_dir and not settings.usage_topic:
        return None
    if settings.usage_dir and settings.usage_topic:
        raise ConfigError("usage_dir and usage_topic are both set: leave out one of them")
    return UsageRules(
        directory=Path(settings.usage_dir) if settings.usage_dir else None,
        topic=settings.usage_topic,
        interval_ms=settings.usage_interval_ms,
        rotate_s=settings.usage_rotate_s,
        rotate_bytes=settings.usage_rotate_bytes,
        keep_bytes=settings.usage_keep_bytes,
        queue_records=settings.usage_queue_records,
        entities_max=settings.usage_entities_max,
        trace_share=settings.usage_trace_share,
    )


def _check_numbers(settings: Settings) -> None:
    """Raise ConfigError for numbers out of range."""
    interval_ms, share = settings.usage_interval_ms, settings.usage_trace_share
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise ConfigError(
            f"usage_interval_ms is {interval_ms}, must be {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}"
        )
    if not 0 <= share <= 1:  # False for NaN
        raise ConfigError(f"usage_trace_share is {share}, must be 0 to 1")
    least = {
        "usage_rotate_s": 1,
        "usage_rotate_bytes": ROTATE_BYTES_MIN,
        "usage_keep_bytes": 0,
        "usage_queue_records": 1,
        "usage_entities_max": 1,
    }
    for name, value in least.items():
        if not getattr(settings, name) >= value:
            raise ConfigError(f"{name} is {getattr(settings, name)}, must be at least {value}")
