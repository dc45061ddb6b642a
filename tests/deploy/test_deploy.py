"""deploy/ agrees with the program: its commands are understood, its paths exist, its packages are whole."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner, Result

from tests.deploy.dockerfile import DOCKERFILE, committed, copied
from tests.deploy.systemd_unit import service
from tests.wire.frames import request, response
from weir.cli.main import weir
from weir.conformance.capture import CaptureWriter
from weir.conformance.capture import Run as CaptureRun
from weir.conformance.events import Bytes, Side
from weir.protocol.messages import MetadataRequest, MetadataResponse
from weir.proxy.config import config
from weir.proxy.control.stores.file import read_quota_file

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = (DEPLOY / "compose.yaml").read_text("utf-8")


def loaded(arguments: list[str]) -> config.Config:
    """What `weir run` makes of these arguments; /etc/weir is deploy/config."""
    in_place = [argument.replace("/etc/weir", str(DEPLOY / "config")) for argument in arguments]
    with patch("weir.cli.run.run_proxy") as ran, patch("weir.proxy.logs.configure"):
        result = CliRunner().invoke(weir, ["run", *in_place])
    assert result.exit_code == 0, result.output
    (found, _reload) = ran.call_args.args
    assert isinstance(found, config.Config)
    return found


def instruction(name: str) -> list[str]:
    """The value of the Dockerfile's last instruction of this name, in JSON form."""
    return [str(word) for word in json.loads(re.findall(rf"^{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])]


def image_command(*arguments: str) -> list[str]:
    """Return the options of `weir run` in the image, with those that its variables stand for."""
    program, command, *options = [*instruction("ENTRYPOINT"), *(list(arguments) or instruction("CMD"))]
    assert (program, command) == ("weir", "run")
    return [f"--{key}={variables()[f'WEIR_{key.upper()}']}" for key in ("config", "admin")] + options


def variables() -> dict[str, str]:
    (line,) = re.findall(r"^ENV (PATH=.*)$", DOCKERFILE, re.MULTILINE)
    return dict(word.split("=", 1) for word in line.split())


def test_the_shipped_configuration_and_its_quota_file_are_valid() -> None:
    settings = loaded(["--config", "/etc/weir/weir.toml"])
    assert settings.quota_file == DEPLOY / "config" / "quotas.toml"
    assert len(read_quota_file(settings.quota_file)) == 3


def test_the_images_exposed_ports_are_those_of_its_configuration() -> None:
    settings = loaded(image_command())
    (exposed,) = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    bootstrap, brokers, admin = exposed.split()
    first, last = map(int, brokers.split("-"))
    assert settings.admin is not None
    assert (int(bootstrap), int(admin)) == (settings.listen.port, settings.admin.port)
    assert (first, last) == (settings.ports.ranges[0].first, settings.ports.ranges[0].last)


def test_every_package_is_in_the_wheel_and_in_the_image() -> None:
    rooms = [path.name for path in (ROOT / "weir").iterdir() if path.is_symlink()]
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]
    assert listed["find"] == {"include": ["weir", "weir.*"], "namespaces": False}
    folders = {file.parent for room in rooms for file in (ROOT / room).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
    assert all(re.search(rf"^COPY {room} {room}$", DOCKERFILE, re.MULTILINE) for room in ["weir", *rooms])


def test_the_image_is_compiled_from_committed_files_with_the_locked_dependencies() -> None:
    assert re.search(r"^ARG COMPILE=1$", DOCKERFILE, re.MULTILINE)
    assert "--constraint constraints.txt" in DOCKERFILE
    assert "constraints.txt" in copied()
    links = {f"weir/{path.name}" for path in (ROOT / "weir").iterdir() if path.is_symlink()}
    assert links <= committed(*copied())
    assert {link.removeprefix("weir/") for link in links} <= set(copied()), "what the links lead to"


def test_the_documented_commands_of_the_image_exist() -> None:
    pages = [DOCKERFILE, *(file.read_text("utf-8") for file in (ROOT / "docs").rglob("*.md"))]
    written = {
        name for page in pages for name in re.findall(r"docker run (?:-[^\n`]* )?weir ([a-z]+)\b", page)
    }
    assert written <= {*weir.commands}
    assert {"run", "check", "capture", "verify"} <= written


def test_the_image_records_and_verifies_with_its_variables(tmp_path: Path) -> None:
    """They are set for every command, also for those without a configuration file."""
    events = [Bytes(1, 0, Side.CLIENT, request(MetadataRequest(), 1))]
    events.append(Bytes(1, 1, Side.SERVER, response(MetadataResponse(), 1)))
    file = tmp_path / "session.weircap"
    with CaptureWriter(file, CaptureRun(1)) as writer:
        for event in events:
            writer.write(event)
    image = {key: value for key, value in variables().items() if key.startswith("WEIR_")}

    def ran(*arguments: str) -> Result:
        return CliRunner().invoke(weir, [*arguments], env=image)

    assert ran("verify", str(file)).exit_code == 0
    lines = ran("verify", str(file), "--frames").stdout.splitlines()
    assert [json.loads(line)["api"] for line in lines] == ["Metadata", "Metadata"]
    refused = ran("capture", "--output", str(file), "--upstream", "a:1", "--listen", "nonsense")
    assert refused.exit_code == 2
    assert "listen is 'nonsense'" in refused.output


def test_compose_runs_weir_with_prometheus_that_scrapes_it_and_grafana_that_shows_it() -> None:
    scraped = (DEPLOY / "prometheus.yml").read_text("utf-8")
    assert f'targets: ["weir:{variables()["WEIR_ADMIN"].rpartition(":")[2]}"]' in scraped
    assert 'WEIR_ADMIN: ":9644"' in COMPOSE
    assert "WEIR_ADMIN_TOKEN_FILE: /token/token" in COMPOSE, "else it does not start off loopback"
    assert all(
        re.search(rf"^  {name}:$", COMPOSE, re.MULTILINE) for name in ("weir", "prometheus", "grafana")
    )
    mounted = re.findall(r"^ {6}- \./([^:]+):", COMPOSE, re.MULTILINE)
    assert {"prometheus.yml", "alerts.yml", "grafana/provisioning", "grafana/weir.json"} <= set(mounted)
    assert [path for path in mounted if not (DEPLOY / path).exists()] == []
    source = (DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text("utf-8")
    (port,) = re.findall(r'"127\.0\.0\.1:(\d+):\d+"', COMPOSE[COMPOSE.index("\n  prometheus:") :])[:1]
    assert f"url: http://prometheus:{port}" in source
    assert all(image.count(":") == 1 for image in re.findall(r"image: (\S+)", COMPOSE)), "each has a release"


def test_compose_publishes_every_advertised_port() -> None:
    weir = COMPOSE[COMPOSE.index("\n  weir:") : COMPOSE.index("\n  prometheus:")]
    arguments = re.findall(r"^ {6}- (run|--.*)$", weir, re.MULTILINE)
    settings = loaded(image_command(*arguments))
    published = re.findall(r'"127\.0\.0\.1:([\d-]+):([\d-]+)"', weir)
    assert [inside for inside, outside in published if inside != outside] == [], (
        "clients are told Weir's ports"
    )
    ports = set()
    for text, _ in published:
        first, _, last = text.partition("-")
        ports |= set(range(int(first), int(last or first) + 1))
    assert settings.admin is not None
    needed = {settings.listen.port, settings.ports.ranges[0].first, settings.admin.port}
    assert needed <= ports
    assert (settings.listen.port, settings.settings.advertised_host) == (19092, "localhost")
    (node_id,) = re.findall(r'KAFKA_NODE_ID: "(\d+)"', COMPOSE)
    assert settings.ports.port(int(node_id)) == settings.ports.ranges[0].first
    assert f"PLAINTEXT://{settings.settings.upstream}" in COMPOSE


def test_the_systemd_unit_gives_weir_drain_time_and_descriptors() -> None:
    unit = service()["Service"]
    program, command, *arguments = shlex.split(unit["ExecStart"])
    assert (Path(program).name, command) == ("weir", "run")
    settings = loaded(arguments).settings
    assert int(unit["LimitNOFILE"]) > 2 * settings.connections_max + 200
    assert int(unit["TimeoutStopSec"].removesuffix("s")) > settings.drain_timeout_s
    assert (unit["KillSignal"], unit["Restart"]) == ("SIGTERM", "always")
