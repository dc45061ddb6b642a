"""The manual page has what the help has."""

from __future__ import annotations

import click
from click.testing import CliRunner

from weir.cli.main import weir
from weir.cli.man import commands


def test_the_manual_page_has_every_option_of_every_command() -> None:
    root = click.Context(weir, info_name="weir")
    page = CliRunner().invoke(weir, ["man"]).stdout.replace("\\-", "-").replace("\\(aq", "'")
    paths = {context.command_path for context in commands(root)}
    assert {
        "weir run",
        "weir check",
        "weir config init",
        "weir quotas import file",
        "weir pipeline rollup",
    } <= paths
    for context in commands(root):
        section = page.split(f".SS {context.command_path}\n")[1].split(".SS ")[0]
        for parameter in context.command.get_params(context):
            record = parameter.get_help_record(context)
            assert record is None or f".B {record[0]}\n" in section
    assert "WEIR_BROKER_PORTS" in page


def test_the_manual_page_has_only_the_roff_requests_that_it_means() -> None:
    lines = CliRunner().invoke(weir, ["man"]).stdout.splitlines()
    requests = {line.split()[0] for line in lines if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi"}
