"""The one error of configuration; a module of its own, for what `proxy.config` calls to check settings."""

from __future__ import annotations


class ConfigError(Exception):
    """Configuration or surroundings that Weir cannot start with; its text is one line that says what to
    do.
    """
