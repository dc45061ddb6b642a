"""The error of configuration, for `config` and the modules that check parts of it."""

from __future__ import annotations


class ConfigError(Exception):
    """Configuration or surroundings with which Weir cannot start; the text is one line that says what to
    do.
    """
