"""The one error of configuration: for `config` and for the modules that check a part of it."""

from __future__ import annotations


class ConfigError(Exception):
    """Configuration or surroundings that Weir cannot start with; its text is one line that says what to
    do.
    """
