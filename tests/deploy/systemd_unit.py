"""The shipped unit of systemd."""

from __future__ import annotations

from configparser import RawConfigParser

from tests.deploy.exposition import ROOT

UNIT = ROOT / "deploy" / "weir.service"


def service() -> RawConfigParser:
    """Return the settings of the unit. Of a repeated setting, the last one."""
    parser = RawConfigParser(strict=False)  # an option may be repeated
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep letters as they are
    parser.read_string(UNIT.read_text("utf-8"))
    return parser
