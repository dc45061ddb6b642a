"""`weir probe`: sends requests to a server, and checks that it keeps to Kafka's protocol."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from weir.cli.exits import FAILED, CommandError
from weir.cli.probe_measure import measure, quotas_to_measure, read_sheet, show_sheets
from weir.cli.progress import Bar
from weir.cli.quantity import Quantity
from weir.cli.report_files import check_report_files, read_report, write_report
from weir.cli.settings.options import broker_options, config_file_option, one_broker
from weir.conformance.probe import brokers, outcomes
from weir.conformance.probe.expectations import Difference, differences, expectations, parse_expectations
from weir.conformance.probe.link import ConversationError, ProbeTarget
from weir.conformance.probe.login import MECHANISMS, Login
from weir.conformance.probe.runner import ProbeOptions, ProbeRun, quota_profile
from weir.conformance.probe.scratch import UnusableError
from weir.conformance.report import (
    MESSAGE_MAX,
    CaseVerdict,
    alike,
    counted,
    probe_junit,
    probe_page,
    probe_report,
    probe_sarif,
    ranges,
    render,
    report_json,
    visible,
)
from weir.proxy.config import config
from weir.proxy.config.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weir.conformance.probe.case import Result
    from weir.conformance.probe.quotas.jobs import ClientQuota
    from weir.conformance.report import ProbeReport

EXAMPLES: Final = """\b
Examples:
  weir probe --upstream kafka-1:9092
  weir probe --upstream kafka-1:9092 --list
  weir probe --upstream kafka-1:9092 --versions
  weir probe --upstream kafka-1:9092 --only Metadata --only 'Fetch/v12/*'
  weir probe --upstream kafka-1:9092 --profile quotas
  weir probe --upstream kafka-1:9092 --profile quotas --measure --json > kafka.json
  weir probe --upstream weir-1:9092 --profile quotas --measure --baseline kafka.json --html page.html
  weir probe --upstream kafka-1:9092 --write-expect kafka.json
  weir probe --upstream weir-1:9092 --expect kafka.json
  weir probe --upstream kafka-1:9092 --expect kafka-3.9.1
  weir probe --upstream kafka-1:9093 --set upstream_tls=ca.pem

\b
Exit codes:
  0  all cases passed, or had the expected outcomes
  1  a case failed, or had another outcome than expected
  2  the target cannot be probed, or stopped in the middle of the run
  130, 143  interrupted (SIGINT, SIGTERM); the scratch topic was removed
"""
PROFILES: Final = ("protocol", "quotas", "all")
RANDOMS: Final = 3
"""Default number of random requests for each API and version."""
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=EXAMPLES)
@broker_options("The server to probe.", "uplift")
@config_file_option("A configuration of Weir: its upstream, and how Weir reaches that.")
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default=PROFILES[0],
    show_default=True,
    help="Requests of every API and version, or how the server enforces client quotas, or both.",
)
@click.option(
    "--measure",
    "measures",
    is_flag=True,
    help="With --profile quotas: measure for 80 s how exactly they hold. --baseline FILE adds other runs.",
)
@click.option(
    "--quotas-set",
    metavar="RUN",
    help="The quotas of --list-quotas RUN are set; for servers without AlterClientQuotas.",
)
@click.option(
    "--list-quotas",
    metavar="RUN",
    help="Print the quotas that --quotas-set RUN needs, as options of kafka-configs.sh, and end.",
)
@click.option("--list", "lists", is_flag=True, help="Print the names of the cases, and end.")
@click.option(
    "--versions",
    "of_versions",
    is_flag=True,
    help="Print the API versions of a broker, and those that Weir offers.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random requests.")
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Run only these cases: a name, a beginning such as Fetch/v12, or a pattern with *. May be repeated.",
)
@click.option(
    "--skip",
    multiple=True,
    metavar="PATTERN",
    help="Do not run these cases, for example one that stops the server. Like --only; may be repeated.",
)
@click.option(
    "--random",
    "randoms",
    type=click.IntRange(0, 1000),
    default=RANDOMS,
    show_default=True,
    help="Number of random requests for each API and version.",
)
@click.option(
    "--timeout-s",
    type=Quantity("s", 0, 3600, above=True),
    default=5,
    show_default=True,
    help="Time after which a missing response counts as hung.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which serves as a baseline too.")
@click.option("--html", "html_file", type=_FILE, metavar="FILE", help="Write an HTML page.")
@click.option("--junit", "junit_file", type=_FILE, metavar="FILE", help="Write JUnit XML: a test per case.")
@click.option(
    "--sarif", "sarif_file", type=_FILE, metavar="FILE", help="Write SARIF 2.1.0, for code scanning."
)
@click.option(
    "--expect",
    metavar="FILE|NAME",
    help="Fail only if an outcome is not the one in this file, or of this broker, such as kafka-3.9.1.",
)
@click.option("--write-expect", type=_FILE, metavar="FILE", help="Write the outcomes to a file for --expect.")
@click.option(
    "--baseline",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="Fail only for failures that this output of --json lacks. May be repeated.",
)
def probe(
    config_file: Path | None,
    profile: str,
    measures: bool,
    quotas_set: str | None,
    list_quotas: str | None,
    lists: bool,
    of_versions: bool,
    seed: int,
    only: Sequence[str],
    skip: Sequence[str],
    randoms: int,
    timeout_s: float,
    as_json: bool,
    html_file: Path | None,
    junit_file: Path | None,
    sarif_file: Path | None,
    expect: str | None,
    write_expect: Path | None,
    baseline: Sequence[Path],
    **upstream: object,
) -> None:
    """Send requests of every API and version that a server offers, and check what it does.

    The probe creates topics of its own, weir-probe-..., and removes them. With --profile quotas it also sets
    and removes quotas for client-ids weir-probe-... It changes nothing else.
    """
    check_report_files(html_file, junit_file, sarif_file, write_expect)
    of_cases = {
        "--list": lists,
        "--only": only,
        "--skip": skip,
        "--junit": junit_file,
        "--sarif": sarif_file,
        "--expect": expect,
        "--write-expect": write_expect,
    }
    if of_versions:
        of_runs = {
            "--profile": profile != PROFILES[0],
            "--measure": measures,
            "--quotas-set": quotas_set,
            "--list-quotas": list_quotas,
            "--seed": seed,
            "--random": randoms != RANDOMS,
            "--html": html_file,
            "--baseline": baseline,
        }
        _refuse("--versions runs no cases", of_cases | of_runs)
        from weir.cli.versions import show_versions  # Trio and uplift, which probing does not need

        show_versions(config_file, timeout_s, upstream, as_json=as_json)
        return
    reach = partial(_target, config_file, timeout_s, upstream)
    if measures:
        if profile != "quotas":
            raise CommandError("--measure needs --profile quotas")
        _refuse("--measure has no cases", of_cases)
        is_named = config_file is not None or upstream.get("upstream") is not None
        _measure(reach, list_quotas, quotas_set, baseline, html_file, as_json, is_named=is_named)
        return
    expected = None if expect is None else _expected(expect, seed, randoms)
    read = (read_report(file, outcomes.parse_baseline, "weir probe --json") for file in baseline)
    known = {failure for failures in read for failure in failures}
    target, login = reach()
    options = ProbeOptions(
        target=target,
        login=login,
        seed=seed,
        randoms=randoms,
        only=tuple(only),
        skip=tuple(skip),
        protocol=profile != "quotas",
        quotas=profile != "protocol",
        quotas_set=list_quotas or quotas_set,
        command=_command(config_file, upstream, randoms),
    )
    if list_quotas is not None:
        _list_quotas(options)
        return
    run = ProbeRun(options)
    if lists:
        _list_cases(run)
        return
    results, stopped = _run(run)
    if write_expect is not None and not stopped:
        write_report(write_expect, expectations(results))
    is_part = bool(only or skip or stopped)
    wrong = None if expected is None else _compare(results, expected, is_part=is_part)
    wrong = wrong and brokers.without_faults(wrong, expect or "")
    ended = [f"Only {len(results)} of {run.total} cases were run: the server stopped."] if stopped else []
    found = outcomes.ProbeOutcomes(f"{target.host}:{target.port}", seed, results, [*run.notes, *ended])
    report = probe_report(found, known, wrong)
    _write_reports(report, html_file, junit_file, sarif_file)
    if as_json:
        click.echo(report_json(found).decode())
    differing = [f"DIFFERS {visible(str(one), MESSAGE_MAX)}" for one in wrong or ()]
    for line in differing if as_json else _summary(report, differing, has_expected=wrong is not None):
        click.echo(line, err=as_json)
    if stopped:
        raise CommandError(stopped)
    if wrong or (wrong is None and report.count(CaseVerdict.FAILED)):
        raise click.exceptions.Exit(FAILED)


def _refuse(reason: str, options: Mapping[str, object]) -> None:
    """Raise CommandError if any of these options has a value that is not false."""
    if given := [option for option, value in options.items() if value]:
        raise CommandError(f"{reason}: leave out {', '.join(given)}")


def _write_reports(
    report: ProbeReport, html_file: Path | None, junit_file: Path | None, sarif_file: Path | None
) -> None:
    if junit_file is not None:
        write_report(junit_file, probe_junit(report))
    if sarif_file is not None:
        write_report(sarif_file, probe_sarif(report))
    if html_file is not None:
        write_report(html_file, render(probe_page(report)))


def _measure(
    reach: Callable[[], tuple[ProbeTarget, Login | None]],
    list_quotas: str | None,
    quotas_set: str | None,
    earlier: Sequence[Path],
    html_file: Path | None,
    as_json: bool,
    *,
    is_named: bool,
) -> None:
    """Measure a target and show its datasheet beside earlier ones; without a target, show these."""
    sheets = [read_sheet(file) for file in earlier]
    if is_named or not sheets:
        target, login = reach()
        if list_quotas is not None:
            _print_quotas(quotas_to_measure(target, login, list_quotas))
            return
        with _terminable():
            sheets.append(measure(target, login, quotas_set))
    show_sheets(sheets, html_file, as_json=as_json)


def _expected(expect: str, seed: int, randoms: int) -> dict[str, str]:
    """Return the outcomes in a file, or those of a broker. Raises CommandError."""
    file = Path(expect)
    if expect in brokers.names() and not file.exists():
        if (seed, randoms) != (brokers.SEED, brokers.RANDOMS):
            raise CommandError(f"the outcomes of {expect} are those of --seed 0 --random 3: leave both out")
        file = brokers.FILES / f"{expect}.json"
    elif not file.exists():
        raise CommandError(f"{expect}: no such file, and none of {', '.join(brokers.names())}")
    return read_report(file, parse_expectations, "weir probe --write-expect")


def _list_cases(run: ProbeRun) -> None:
    try:
        names = run.case_names()
    except UnusableError as error:
        raise CommandError(visible(str(error), MESSAGE_MAX)) from None
    for name in names:
        click.echo(name)


def _list_quotas(options: ProbeOptions) -> None:
    try:
        _print_quotas(quota_profile(options).quotas)
    except ConversationError as error:
        raise CommandError(str(error)) from None


def _print_quotas(quotas: Sequence[ClientQuota]) -> None:
    for quota in quotas:
        value = f"{quota.value:.8f}".rstrip("0").rstrip(".")
        click.echo(
            f"--alter --entity-type clients --entity-name {quota.client_id} --add-config {quota.key}={value}"
        )


def _run(run: ProbeRun) -> tuple[list[Result], str]:
    """Run all cases, with a progress bar. Return the results, and the reason why the run ended before all
    cases; "" if it did not. Raises CommandError without a result.
    """
    results: list[Result] = []
    try:
        with _terminable(), Bar() as bar, contextlib.closing(run.results()) as found:
            for result in found:
                results.append(result)
                bar.say(len(results), run.total, result.case)
    except UnusableError as error:
        done = [f"{len(results)} of {run.total} cases were done"] if results else []
        text = visible("; ".join([str(error), *done, *run.cluster.left]), MESSAGE_MAX)
        if not results:
            raise CommandError(text) from None
        return results, text
    if not results:
        raise CommandError("no case has such a name: see --only")
    return results, ""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM end the work like Ctrl-C: the scratch topic and the quotas are removed."""
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(_signal: int, _frame: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


def _compare(results: Sequence[Result], expected: dict[str, str], *, is_part: bool) -> list[Difference]:
    """Return the differences; if only a part of the cases was run, just those of that part."""
    wrong = differences(results, expected)
    return [one for one in wrong if one.found is not None] if is_part else wrong


def _summary(report: ProbeReport, differing: Sequence[str], *, has_expected: bool) -> Iterator[str]:
    """Yield the lines of the terminal summary. With expectations, these decide instead of failures."""
    shown = CaseVerdict.KNOWN if has_expected else CaseVerdict.FAILED
    word = "EXPECTED" if has_expected else "FAILED"
    for group in alike(report.cases):
        if group[0].verdict is shown:
            yield from _failure(word, [one.result for one in group], visible(group[0].message, MESSAGE_MAX))
    yield from differing
    yield from (f"note: {visible(note, MESSAGE_MAX)}" for note in report.notes)
    results = [one.result for one in report.cases]
    apis = len({result.api for result in results})
    passed = sum(result.passed for result in results)
    text = f"{counted(len(results), 'case')} of {counted(apis, 'API')}: {passed} passed, "
    text += f"{len(results) - passed} failed"
    yield text + (f"; {len(differing)} differ from the expected outcomes" if has_expected else "")


def _failure(word: str, failed: Sequence[Result], message: str) -> Iterator[str]:
    """Yield the lines about cases that failed alike. `word`: the first one."""
    first = failed[0]
    if len(failed) == 1:
        yield f"{word} {first.case}: {message}"
    else:
        versions = ranges(sorted({result.version for result in failed}))
        yield f"{word} {first.api} {versions}, {len(failed)} cases: {message}"
    yield f"    {first.repeat}"


def _target(
    config_file: Path | None, timeout_s: float, upstream: Mapping[str, object]
) -> tuple[ProbeTarget, Login | None]:
    """Return the server that the settings name, and the login there. Raises CommandError."""
    try:
        loaded = config.load(config_file, upstream)
        address, tls, by = one_broker(loaded), loaded.tls.upstream, loaded.credentials
        target = ProbeTarget(address.host, address.port, timeout_s, None if tls is None else tls.context)
    except ConfigError as error:
        raise CommandError(str(error)) from None
    if by is not None and by.mechanism not in MECHANISMS:
        raise CommandError(f"the probe logs in with {', '.join(MECHANISMS)}, not with {by.mechanism}")
    return target, None if by is None else Login(by.username, by.password, by.mechanism)


def _command(config_file: Path | None, upstream: Mapping[str, object], randoms: int) -> str:
    """Return the beginning of the command that repeats a case."""
    parts = ["weir", "probe"]
    if config_file is not None:
        parts += ["--config", str(config_file)]
    for key, value in upstream.items():
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            parts += ["--upstream", text] if key == "upstream" else ["--set", f"{key}={text}"]
    if randoms != RANDOMS:
        parts += ["--random", str(randoms)]
    return shlex.join(parts)
