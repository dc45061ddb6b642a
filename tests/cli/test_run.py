"""`weir run`: what is wrong is one line and exit code 2; what is right serves until a signal."""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.cli.cluster import Producer
from tests.cli.conftest import Misused
from tests.cli.run_command import refused
from tests.cli.run_process import running
from tests.kafka.ports import free_range
from tests.kfake.cluster import Cluster
from tests.kfake.threads import Brokers
from tests.matrix import first_core
from tests.proxy.usage_rigs import text_of
from tests.proxy.wire import quota_table
from tests.wire.frames import request
from weir.cli.main import weir
from weir.cli.settings.sections import SECTIONS
from weir.protocol.messages import ProduceRequest
from weir.proxy.config import config
from weir.proxy.connection import connection
from weir.proxy.run import quota_registry
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.usage import UsageRecord

HOST = "127.0.0.1"


def written(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["no upstream", "--upstream HOST:PORT"]),
        (["--upstream", "kafka"], ["upstream is 'kafka'", "HOST:PORT", "for example"]),
        (["--upstream", "kafka:65536"], ["upstream is 'kafka:65536', its port must be 1 to 65535"]),
        (["--upstream", "a:1,b"], ["upstream is 'b'"]),
        (["--upstream", "[::1:9092"], ["upstream is"]),
        (["--upstream", "a:1", "--listen", "19092"], ["listen is '19092'"]),
        (["--upstream", "a:1", "--broker-ports", "9"], ["broker_ports is '9'", "FIRST-LAST"]),
        (["--upstream", "a:1", "--broker-ports", "9-8"], ["broker_ports is '9-8'"]),
        (["--upstream", "a:1", "--broker-ports", "19000-19100"], ["contains the port of listen (19092)"]),
        (["--upstream", "a:1", "--broker-ports", "20000-20001,9"], ["broker_ports is '9'", "@NODE_ID"]),
        (["--upstream", "a:1", "--broker-ports", "1-2@5,2-3@9"], ["broker_ports has ports twice"]),
        (["--upstream", "a:1", "--broker-ports", "1-2@5,8-9@6"], ["broker_ports has node ids twice"]),
        (["--upstream", "a:1", "--broker-ports", "1-2@9999999999"], ["node id above 2147483647"]),
        (
            ["--upstream", "a:1", "--broker-ports", "1-2,80-90@5", "--admin", ":85"],
            ["the port of admin (85) belongs to"],
        ),
        (
            ["--upstream", "a:1", "--set", "connections_max=0"],
            ["connections_max is 0, must be greater than 0"],
        ),
        (["--upstream", "a:1", "--set", "refresh_s=nan"], ["refresh_s is nan"]),
        (["--upstream", "a:1", "--set", "drain_timeout_s=-1"], ["drain_timeout_s is -1, must be at least 0"]),
        (
            ["--upstream", "a:1", "--set", "quota_window_num=1"],
            ["quota_window_num is 1", "2"],
        ),
        (
            ["--upstream", "a:1", "--set", "quota_window_size_seconds=-1"],
            ["quota_window_size_seconds is -1, must be 1 to 86400"],
        ),
        (["--upstream", "a:1", "--listen", ":65535"], ["broker_ports", "65535"]),
        (["--config", "no/such/file"], ["no/such/file: cannot read the configuration: No such file"]),
        (["--upstream", "a:1", "--quotas", "no/such"], ["no/such: cannot read the quota file: No such file"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_weir_run_reports_wrong_options_in_one_line(arguments: list[str], words: list[str]) -> None:
    line = refused(*arguments)
    assert line.startswith("weir: ")
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("upstream = [", "not TOML"),
        (f"connections_max = {'9' * 5000}", "not TOML"),
        (f"upstream = {'[' * 20_000}", "not TOML"),
        ("upstreams = 'a:1'", "unknown key upstreams: did you mean upstream?"),
        ("servers = 'a:1'", "unknown key servers: weir config --new --all lists the keys"),
        ("upstream = 3", "upstream is 3, must be text in quotes"),
        ("connections_max = 1.5", "connections_max is 1.5, must be a whole number"),
        ("refresh_s = true", "refresh_s is true, must be a number"),
        ("uplift = 1", "uplift is 1, must be true or false"),
        ("uplift = 'no'", "uplift is 'no', must be true or false"),
        ("quota_mode = 'off'", "quota_mode is 'off', must be one of enforce, shadow"),
        (
            f"connections_max = {10**400}",
            "connections_max is too large, must be at most 9223372036854775807",
        ),
        ("quota_window_num = 1_000_000_000", "quota_window_num is 1000000000, must be 2 to 10000"),
        ("quota_window_size_seconds = 100_000", "must be 1 to 86400"),
        ('workers = "two"', "workers is 'two', must be a whole number or \"auto\""),
        ("refresh_s = inf", "refresh_s is too large, must be at most 9223372036854775807"),
        ("refresh_s = '\N{ARABIC-INDIC DIGIT THREE}s'", "must be a number of seconds, or a duration"),
        ("quotas = 3", "quotas is 3, must be text in quotes"),
        ("quotas = ['a']", "quotas is ['a'], must be text in quotes"),
        ("[upstream]\nhost = 'a'", "keys must not stand in tables: leave out [upstream]"),
        ("[quotas]\n", "keys must not stand in tables: leave out [quotas]"),
        ("[quotas.controller]\n", "keys must not stand in tables: leave out [quotas]"),
        ("tls.cert = 'weir.pem'", "keys must not stand in tables: write tls.cert as tls_cert"),
        (
            "[tls]\nclient_ca = 'ca.pem'\nnonsense = 1\nlisten = ':1'",
            "keys must not stand in tables: write tls.client_ca as tls_client_ca",
        ),
        ("quotas = {file = 'q'}", "keys must not stand in tables: leave out [quotas]"),
        ("[[quota]]\nuser = 'a'", "unknown key quota: did you mean quotas?"),
    ],
)
def test_a_configuration_file_with_a_mistake_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = written(tmp_path / "weir.toml", text)
    line = refused("--config", file)
    assert line.startswith(f"weir: {file}: ")
    assert words in line


def test_a_configuration_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_bytes(b"upstream = '\xff'")
    assert "it is not UTF-8, at byte 12" in refused("--config", str(file))


def test_a_quota_file_with_a_mistake_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "quotas.toml", "[[quota]]\nproducer_byte_rate = 1\n")
    line = refused("--upstream", "a:1", "--quotas", file)
    assert line.startswith(f"weir: {file}: ")


def test_the_window_of_rates_reaches_the_budgets() -> None:
    loaded = config.load(None, {"upstream": "a:1", "quota_window_num": 3, "quota_window_size_seconds": 2})
    registry = quota_registry(loaded, quota_table(fetch=1000))
    budget = registry.of(0).ledger("ANONYMOUS", "app", 0).fetch
    assert budget is not None
    assert budget.fetch_max_bytes == 4000
    assert budget.charge(4000, 0) == 0
    assert budget.charge(1000, 0) == 1000


def test_the_window_of_mutations_reaches_the_budgets() -> None:
    options = {
        "upstream": "a:1",
        "quota_window_num": 100,
        "quota_window_size_seconds": 2,
    }
    limit = QuotaTable({(Entity(client_id="app"), QuotaKey.CONTROLLER_MUTATION_RATE): 5.0})
    registry = quota_registry(config.load(None, options), limit)
    budget = registry.of(0).mutations.budget("ANONYMOUS", "app", 0)
    assert budget is not None
    assert budget.tokens(0) == 1000


def test_an_almost_empty_configuration_keeps_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text("upstream = 'a:1'\nquotas = ''\n")
    loaded = config.load(file, {})
    assert loaded.quota_file is None
    assert loaded.settings == config.load(None, {"upstream": "a:1"}).settings
    settings = loaded.settings
    assert (settings.quota_window_num, settings.quota_window_size_seconds) == (11, 1)
    assert settings.uplift


@pytest.mark.parametrize(
    ("written", "options", "uplift"),
    [
        ("", [], True),
        ("", ["--set", "uplift=false"], False),
        ("uplift = false", [], False),
        ("uplift = false", ["--set", "uplift=true"], True),
        ("uplift = true", ["--set", "uplift=false"], False),
    ],
)
def test_an_absent_switch_keeps_the_configuration_files_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, options: list[str], *, uplift: bool
) -> None:
    file = tmp_path / "weir.toml"
    file.write_text(f'upstream = "a:1"\n{written}\n')
    ran: list[config.Config] = []
    monkeypatch.setattr("weir.cli.run.run_proxy", lambda loaded, _load: ran.append(loaded))
    monkeypatch.setattr("weir.proxy.logs.configure", lambda *_: None)
    result = CliRunner().invoke(weir, ["run", "--config", str(file), *options])
    assert result.exit_code == 0, result.output
    assert [loaded.settings.uplift for loaded in ran] == [uplift]


def test_an_option_is_relative_to_where_the_command_runs(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('upstream = "file:1"\nquotas = "q.toml"\n')
    loaded = config.load(file, {"quotas": "mine.toml"})
    assert str(loaded.quota_file) == "mine.toml"


@pytest.mark.parametrize("at", ["", "below/"])
def test_a_quota_file_may_be_called_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    Path(f"{at}weir.toml").write_text('upstream = "file:1"\nquotas = "./topic"\n')
    assert config.load(Path(f"{at}weir.toml"), {}).quota_file == Path(f"{at}topic")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("a:1", "a", 1), ("[::1]:9092", "::1", 9092), ("10.0.0.1:65535", "10.0.0.1", 65535)],
)
def test_listener_addresses_are_parsed(text: str, host: str, port: int) -> None:
    assert config.parse_address(text, "upstream") == (host, port)


def test_every_key_is_in_one_section() -> None:
    placed = [name for names in SECTIONS.values() for name in names]
    assert sorted(placed) == sorted(config.Settings.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workers", "--set workers: must be KEY=VALUE"),
        ("worker=2", "--set worker: no such key; did you mean workers?"),
        ("config=a", "--set config: no such key"),
    ],
)
def test_a_mistake_in_set_is_named(misused: Misused, text: str, said: str) -> None:
    assert misused("run", "--upstream", "a:1", "--set", text).startswith(said)
    assert misused("probe", "--upstream", "a:1", "--set", "workers=2").startswith(
        "--set workers: this command does not read it"
    )


def test_the_shell_completes_commands_and_options() -> None:
    """As docs/reference/command-line.md says; click's protocol for bash."""
    environment = {**os.environ, "PYTHONPATH": ".", "_WEIR_COMPLETE": "bash_complete"}
    variables = {**environment, "COMP_WORDS": "weir run --broker-p", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "weir.cli"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert "plain,--broker-ports" in done.stdout.split()


def test_the_version_tells_compiled_weir_from_plain_python() -> None:
    """The lane `compiled` runs this test with compiled modules."""
    kind = "pure Python" if str(connection.__file__).endswith(".py") else "compiled"
    said = CliRunner().invoke(weir, ["--version"]).output
    assert said == f"weir, version {version('kafka-weir')} ({kind}, Python {platform.python_version()})\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], ["No such command 'nonsense'", "see weir --help"]),
        (["run", "--upstreams", "a:1"], ["No such option '--upstreams'", "see weir run --help"]),
        (["run", "--usage", "a"], ["No such option '--usage'", "use --set usage=VALUE"]),
        (["check", "--no-uplift"], ["No such option '--no-uplift'", "use --set uplift=false"]),
        (["calibrate", "--no-uplift"], ["No such option '--no-uplift'", "see weir calibrate --help"]),
        (
            ["probe", "--upstream-tls", "a"],
            ["No such option '--upstream-tls'", "use --set upstream_tls=VALUE"],
        ),
        (["run", "--upstream"], ["'--upstream' requires an argument"]),
        (["run", "--quota-mode", "x"], ["'x' is not one of", "shadow"]),
        (["demo", "--for", "1"], ["1 is not in the range >= 5, <= 3600 (s)", "see weir demo --help"]),
    ],
)
def test_wrong_usage_of_the_weir_command_is_one_line(
    arguments: list[str], words: list[str], misused: Misused
) -> None:
    line = misused(*arguments)
    assert all(word in line for word in words)


@pytest.fixture
def broker() -> Iterator[int]:
    with Brokers(Cluster(shy=True)) as brokers:
        yield brokers.ports[0]


def throttle_ms(port: int, size: int, client_id: str) -> int:
    """What a produce request of this size is told, the first of a client with a budget of its own."""
    with Producer(port, client_id) as client:
        return client.produce(size)


@pytest.mark.parametrize("number", first_core([signal.SIGTERM, signal.SIGINT]))
def test_weir_run_serves_follows_its_quota_file_and_stops_on_a_signal(
    broker: int, tmp_path: Path, number: signal.Signals
) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("")
    port = free_range(12)
    options = {
        "--upstream": f"{HOST}:{broker}",
        "--listen": f"{HOST}:{port}",
        "--broker-ports": f"{port + 1}-{port + 10}",
        "--quotas": str(quotas),
    }
    with running(*(word for option in options.items() for word in option)) as weir_run:
        weir_run.logged("listening")
        began = weir_run.logged("quotas in force")
        assert (began["store"], began["quotas"], began["mode"]) == ("file", 0, "enforce")
        assert throttle_ms(port, 30_000, "one") == 0
        limited = tmp_path / "new.toml"
        limited.write_text('[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 1000\n')
        limited.replace(quotas)  # as editors do
        weir_run.logged("quotas loaded")
        while (waits_ms := throttle_ms(port, 30_000, "two")) == 0:  # the worker has not got them yet
            pass
        assert waits_ms > 10_000
        quotas.write_text("[[quota]]\nclient_id = ")
        assert "quotas.toml" in str(weir_run.logged("quotas not loaded")["reason"])
        assert throttle_ms(port, 30_000, "three") > 10_000
        weir_run.process.send_signal(signal.SIGHUP)
        weir_run.logged("reloading")
        assert "quotas.toml" in str(weir_run.logged("quotas not loaded")["reason"])
        weir_run.process.send_signal(number)
        weir_run.logged("stopping")
        assert weir_run.process.wait(120) == 0


@pytest.mark.parametrize("has_listeners", first_core([True, False]))
def test_weir_run_shows_replication_quotas_only_with_replication_listeners(
    broker: int, has_listeners: bool
) -> None:
    port = free_range(5)
    options = {
        "--upstream": f"{HOST}:{broker}",
        "--listen": f"{HOST}:{port}",
        "--broker-ports": f"{port + 1}-{port + 2}",
        "--admin": f"{HOST}:{port + 3}",
    }
    more = list[str]()
    if has_listeners:
        more = ["--set", f"replication_upstream=0@{HOST}:{broker}"]
        more += ["--set", f"replication_listen={HOST}:{port + 4}"]
    with running(*(word for option in options.items() for word in option), *more) as weir_run:
        weir_run.logged("admin endpoint listening")
        asked = ["top", "--view", "replication", "--admin", f"{HOST}:{port + 3}", "--json"]
        shown = json.loads(CliRunner().invoke(weir, asked).stdout)
    assert shown["configured"] is has_listeners


def used(directory: Path) -> dict[str, int]:
    """What the finished files in a directory say of the bytes that each client-id has sent."""
    total: dict[str, int] = {}
    for path in directory.glob("usage-*.jsonl.zst"):
        for line in text_of(path).splitlines():
            record = msgspec.json.decode(line, type=UsageRecord)
            total[record.client_id] = total.get(record.client_id, 0) + record.bytes_in
    return total


@pytest.mark.slow
def test_weir_run_loses_no_usage_record_on_a_signal_or_when_killed(broker: int, tmp_path: Path) -> None:
    port, directory = free_range(3), tmp_path / "usage"
    options = ["--upstream", f"{HOST}:{broker}", "--listen", f"{HOST}:{port}"]
    options += ["--broker-ports", f"{port + 1}-{port + 2}", "--set", f"usage={directory}"]
    options += ["--set", "usage_interval_ms=1000"]
    sizes = {
        name: len(request(ProduceRequest(acks=1, transactional_id="t" * 500), 7, client_id=name))
        for name in (b"app", b"other")
    }
    with running(*options) as weir_run:
        weir_run.logged("recording usage")
        for _ in range(3):
            throttle_ms(port, 500, "app")
        weir_run.process.send_signal(signal.SIGTERM)
        assert weir_run.process.wait(120) == 0
    assert used(directory) == {"app": 3 * sizes[b"app"]}
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []
    with running(*options) as weir_run:
        weir_run.logged("recording usage")
        throttle_ms(port, 500, "other")
        while not any(path.stat().st_size for path in directory.glob(".usage-*.part")):
            assert weir_run.process.poll() is None  # its time is limited
            time.sleep(0.01)
        weir_run.process.send_signal(signal.SIGKILL)
        weir_run.process.wait(120)
    assert used(directory) == {"app": 3 * sizes[b"app"]}
    with running(*options) as weir_run:
        assert weir_run.logged("usage files of killed writers finished")["files"] == 1
    assert used(directory) == {"app": 3 * sizes[b"app"], "other": sizes[b"other"]}


@pytest.mark.slow
def test_weir_run_raises_its_descriptor_limit_to_the_hard_limit(broker: int) -> None:
    port = free_range(3)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    given = ("--upstream", f"{HOST}:{broker}", "--listen", f"{HOST}:{port}")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        with running(*given, "--broker-ports", f"{port + 1}-{port + 2}") as weir_run:
            weir_run.logged("listening")
            assert resource.prlimit(weir_run.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_weir_run_on_a_system_without_epoll_names_docker_and_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("select.epoll")
    line = refused("--upstream", f"{HOST}:1")
    assert line.startswith("weir: this system has no epoll, which Weir needs: ")
    assert line.endswith("run it on Linux, or in Docker (deploy/Dockerfile)")
