"""Checks of the settings that name a store or a topic: quotas, usage, events_topic, usage_share_topic."""

from __future__ import annotations

from typing import Final

from weir.proxy.config.settings import IN_TOPIC, OF_TRACES, TOPIC_NAME, ConfigError, Settings

CHARACTERS: Final = "letters, digits, '.', '_' and '-'"


def check_store(settings: Settings) -> None:
    """Raise ConfigError if `quotas` begins like a store, and names none."""
    kind, colon, name = settings.quotas.partition(":")
    if settings.quota_store != "file" and colon and (kind != "topic" or not TOPIC_NAME.fullmatch(name)):
        raise ConfigError(
            f"quotas is {settings.quotas!r}, must be a file, topic, topic:NAME or broker; the name has "
            f"{CHARACTERS}"
        )


def check_topics(settings: Settings) -> None:
    """Raise ConfigError if usage, events or shared usage are to go to a topic whose name Kafka refuses."""
    if settings.usage == "topic":
        raise ConfigError("usage is 'topic', must be topic:NAME or a directory, for example ./topic")
    if settings.usage.startswith(IN_TOPIC):
        _check_topic(settings, "usage", settings.usage.removeprefix(IN_TOPIC), end=OF_TRACES)
    for key in ("events_topic", "usage_share_topic"):
        if getattr(settings, key):
            _check_topic(settings, key, getattr(settings, key))


def _check_topic(settings: Settings, key: str, name: str, end: str = "") -> None:
    if not (TOPIC_NAME.fullmatch(name) and TOPIC_NAME.fullmatch(name + end)):
        raise ConfigError(
            f"{key} is {getattr(settings, key)!r}, must name a topic: {CHARACTERS}, at most "
            f"{249 - len(end)} of them"
        )
