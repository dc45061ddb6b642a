"""Environment variables: those of the settings, their precedence, and NO_COLOR."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.cli.conftest import Misused
from tests.cli.run_command import refused
from weir.cli.main import weir
from weir.proxy.config import config


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[config.Config]:
    ran: list[config.Config] = []
    monkeypatch.setattr("weir.cli.run.run_proxy", lambda loaded, _reload: ran.append(loaded))
    monkeypatch.setattr("weir.proxy.logs.configure", lambda *_: None)
    return ran


def run(*arguments: str, environment: dict[str, str]) -> None:
    result = CliRunner().invoke(weir, ["run", *arguments], env=environment)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("option", "environment", "written", "expected"),
    [
        ("5s", "6s", "7s", 5.0),
        (None, "6s", "7s", 6.0),
        (None, None, "7s", 7.0),
        (None, None, None, 30.0),
        ("5s", None, "7s", 5.0),
    ],
)
def test_an_option_wins_over_the_environment_that_over_the_file_and_that_over_the_default(
    tmp_path: Path,
    loaded: list[config.Config],
    option: str | None,
    environment: str | None,
    written: str | None,
    expected: float,
) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('upstream = "a:1"\n' + (f'refresh_s = "{written}"\n' if written else ""))
    variables = {"WEIR_CONFIG": str(file), **({"WEIR_REFRESH_S": environment} if environment else {})}
    run(*(["--set", f"refresh_s={option}"] if option else []), environment=variables)
    assert [one.settings.refresh_s for one in loaded] == [expected]


def test_settings_have_environment_variables_of_their_names(loaded: list[config.Config]) -> None:
    run(environment={"WEIR_UPSTREAM": "a:1", "WEIR_UPLIFT": "false", "WEIR_FRAME_BYTES_MAX": "1MiB"})
    (one,) = loaded
    assert (one.upstream, one.settings.uplift) == ((("a", 1),), False)
    assert one.settings.frame_bytes_max == 1 << 20


def test_options_of_other_commands_have_the_variables_that_click_gives_them(tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text('[[quota]]\nuser = "alice"\nproducer_byte_rate = 5\n')
    environment = {"WEIR_QUOTAS": str(file), "WEIR_QUOTAS_LIST_USER": "alice"}
    result = CliRunner().invoke(weir, ["quotas", "list"], env=environment)
    assert result.exit_code == 0, result.output
    assert "user alice" in result.stdout


def test_a_mistake_in_an_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CONNECTIONS_MAX", "0")
    assert refused("--upstream", "a:1") == "weir: connections_max is 0, must be greater than 0"


def test_a_variable_that_cannot_be_read_is_named_instead_of_the_option(
    monkeypatch: pytest.MonkeyPatch, misused: Misused
) -> None:
    monkeypatch.setenv("WEIR_REFRESH_S", "5x")
    line = misused("run", "--upstream", "a:1")
    assert line.startswith("Invalid value for environment variable WEIR_REFRESH_S: '5x' is not a number")
    monkeypatch.setenv("WEIR_THROTTLE_MODE", "wait")
    assert "for --set refresh_s: '6x'" in misused("run", "--upstream", "a:1", "--set", "refresh_s=6x")


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_switches_colours_off(no_color: str, *, coloured: bool) -> None:
    @click.command()
    def paint() -> None:
        click.secho("painted", fg="red")

    weir.add_command(paint)
    try:
        result = CliRunner().invoke(weir, ["paint"], env={"NO_COLOR": no_color}, color=True)
    finally:
        del weir.commands["paint"]
    assert ("\x1b[" in result.stdout) == coloured


@pytest.mark.parametrize("command", [["probe"], ["calibrate"], ["quotas", "import"], ["demo"]])
def test_the_variable_of_the_upstream_is_read_by_every_command_that_asks_a_cluster(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("WEIR_UPSTREAM", "a:1")
    found: click.Command = weir
    for name in command:
        assert isinstance(found, click.Group)
        chosen = found.get_command(click.Context(found), name)
        assert chosen is not None
        found = chosen
    context = found.make_context(command[-1], [], auto_envvar_prefix="WEIR")
    assert context.params["upstream"] == "a:1"
