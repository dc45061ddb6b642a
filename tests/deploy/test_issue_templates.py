"""Templates for issues name commands that exist."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click
import pytest

from tests.deploy.exposition import ROOT
from weir.cli.main import weir

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATES: Final = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.md"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_for_issues_begins_with_its_name_and_purpose(path: Path) -> None:
    assert re.match(r"---\nname: \w+\nabout: .+\nlabels: \w+\n---\n", path.read_text("utf-8"))


def test_the_template_for_bugs_asks_for_version_configuration_and_log() -> None:
    text = (ROOT / ".github/ISSUE_TEMPLATE/bug.md").read_text("utf-8")
    for command in ("config show", "quotas explain"):
        assert f"`weir {command}" in text
        group = weir.commands[command.split()[0]]
        assert isinstance(group, click.Group)
        assert group.get_command(click.Context(group), command.split()[1]) is not None
    assert "`weir --version`" in text
    assert "**Log**" in text
    assert "SECURITY.md" in text
