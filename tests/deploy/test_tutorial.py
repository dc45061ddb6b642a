"""docs/tutorials/first-quotas.md: its commands and files are understood."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import Final

import click
import pytest

from tests.deploy.exposition import ROOT
from weir.cli.main import weir
from weir.quotas import parse

PAGE: Final = (ROOT / "docs/tutorials/first-quotas.md").read_text("utf-8")
FILES: Final = dict(re.findall(r"^cat > (\S+) <<'END'\n(.*?)^END$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS: Final = re.findall(r"^(weir [^`\n]*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_tutorial_have_options_that_exist(line: str) -> None:
    command: click.Command = weir
    context = click.Context(weir)
    _, *words = shlex.split(line)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, line
        command, context, words = found, click.Context(found, context), words[1:]
    command.parse_args(context, words)


def test_the_tutorial_shows_check_run_explain_set_and_list() -> None:
    assert [re.sub(r" -.*", "", line) for line in COMMANDS] == [
        "weir check",
        "weir run",
        "weir quotas explain",
        "weir quotas set",
        "weir quotas list",
    ]


def test_the_quota_file_of_the_tutorial_has_one_shadow_quota_that_its_edit_enforces() -> None:
    text = FILES["quotas.toml"]
    assert tomllib.loads(text)["quota"][0]["mode"] == "shadow"
    enforced = "".join(line for line in text.splitlines(True) if not line.startswith("mode"))
    assert "sed -i '/^mode/d' quotas.toml" in PAGE
    assert len(parse(text)) == len(parse(enforced)) == 1
    assert "mode" not in tomllib.loads(enforced)["quota"][0]


def test_the_producer_of_the_tutorial_can_be_compiled_and_bootstraps_at_weir() -> None:
    compile(FILES["send.py"], "send.py", "exec")
    (listen,) = set(re.findall(r"--listen (\S+)", PAGE))
    assert f'"bootstrap.servers": "{listen}"' in FILES["send.py"]
