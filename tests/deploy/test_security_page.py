"""docs/background/security.md names tests, metrics, settings and defaults that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.settings import Settings

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGE: Final = (DOCS / "background" / "security.md").read_text("utf-8")
NAMED: Final = frozenset(re.findall(r"`([^`\n]+)`", PAGE))


def test_every_test_that_proves_a_claim_exists() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tests = set(re.findall(r"^\s*(?:async )?def (test_\w+)\(", sources, re.MULTILINE))
    named = {name for name in NAMED if name.startswith("test_")}
    assert len(named) > 50
    assert named - tests == set()


def test_the_metrics_of_the_security_page_are_on_the_metrics_page() -> None:
    page = (DOCS / "reference" / "metrics.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(weir_\w+)`", page, re.MULTILINE))
    assert {name for name in NAMED if name.startswith("weir_")} - listed == set()


def test_the_names_with_an_underscore_are_settings_or_close_reasons() -> None:
    others = {"client_host", "client_id_prefix", "controller_mutation_rate", "request_percentage"}
    settings = {field.name for field in msgspec.structs.fields(Settings)}
    names = {name for name in NAMED if re.fullmatch(r"(?!test_|weir_|process_)[a-z]+(_[a-z]+)+", name)}
    assert names - settings - {reason.value for reason in CloseReason} - others == set()


def test_the_defaults_of_the_security_page_are_those_of_the_settings() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \| ", PAGE[PAGE.index("## Defaults") :], re.MULTILINE)
    said = {name: default.strip() for name, default in rows}
    defaults = Settings()
    assert len(said) >= 9
    assert said == {name: shown(getattr(defaults, name)) for name in said}


def test_defaults_in_brackets_behind_a_setting_are_those_of_the_settings() -> None:
    defaults, settings = Settings(), {field.name for field in msgspec.structs.fields(Settings)}
    said = {name: value for name, value in re.findall(r"`(\w+)` \((\w+)\)", PAGE) if name in settings}
    assert len(said) > 5
    expected = {name: shown(getattr(defaults, name)) for name in said}
    assert said == expected | {
        name: "none" for name in said if said[name] == "none" and expected[name] == "0"
    }


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"
