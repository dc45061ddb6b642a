"""deploy/ agrees with the program: its commands are understood, its paths exist, its packages are whole."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from configparser import RawConfigParser
from pathlib import Path

import pytest

from weir.cli.run import run as run_command
from weir.proxy.config import config
from weir.proxy.control.stores.file import read_quota_file

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE = (DEPLOY / "compose.yaml").read_text("utf-8")


def loaded(arguments: list[str]) -> config.Config:
    """What `weir run` makes of these arguments; /etc/weir is deploy/config."""
    in_place = [argument.replace("/etc/weir", str(DEPLOY / "config")) for argument in arguments]
    options = run_command.make_context("run", in_place).params
    return config.load(options.pop("config_file"), options)


def instruction(name: str) -> list[str]:
    """The value of the Dockerfile's last instruction of this name, in JSON form."""
    return [str(word) for word in json.loads(re.findall(rf"^{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])]


def image_command(*arguments: str) -> list[str]:
    """What the image runs, without `weir run`."""
    entry_point = instruction("ENTRYPOINT")
    assert entry_point[:2] == ["weir", "run"]
    return [*entry_point[2:], *(arguments or instruction("CMD"))]


def service() -> RawConfigParser:
    parser = RawConfigParser(strict=False)  # an option may be repeated
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep letters as they are
    parser.read_string((DEPLOY / "weir.service").read_text("utf-8"))
    return parser


def test_the_shipped_configuration_and_its_quota_file_are_valid() -> None:
    settings = loaded(["--config", "/etc/weir/weir.toml"])
    assert settings.quota_file == DEPLOY / "config" / "quotas.toml"
    assert len(read_quota_file(settings.quota_file)) == 3


def test_the_images_health_check_asks_its_configured_admin_port() -> None:
    settings = loaded(image_command())
    assert settings.quota_file is not None
    assert settings.admin is not None
    assert f"http://127.0.0.1:{settings.admin.port}/healthz" in DOCKERFILE


def test_the_images_exposed_ports_are_those_of_its_configuration() -> None:
    settings = loaded(image_command())
    (exposed,) = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    bootstrap, brokers, admin = exposed.split()
    first, last = map(int, brokers.split("-"))
    assert settings.admin is not None
    assert (int(bootstrap), int(admin)) == (settings.listen.port, settings.admin.port)
    assert (first, last) == (settings.ports.first, settings.ports.last)


def test_the_image_does_not_run_as_root_and_copies_existing_paths() -> None:
    (user,) = re.findall(r"^USER (\d+)", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0
    assert "USER" not in DOCKERFILE.split("FROM")[1], "only the final image needs one"
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source}" in allowed, "else the build does not see it"


def test_every_package_is_in_the_wheel_and_in_the_image() -> None:
    rooms = [path.name for path in (ROOT / "weir").iterdir() if path.is_symlink()]
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]
    assert listed["find"] == {"include": ["weir", "weir.*"], "namespaces": False}
    folders = {file.parent for room in rooms for file in (ROOT / room).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
    assert all(re.search(rf"^COPY {room} {room}$", DOCKERFILE, re.MULTILINE) for room in ["weir", *rooms])


def test_compose_publishes_every_advertised_port() -> None:
    arguments = re.findall(r"^ {6}- (--.*)$", COMPOSE, re.MULTILINE)
    settings = loaded(image_command(*arguments))
    published = re.findall(r'"127\.0\.0\.1:([\d-]+):([\d-]+)"', COMPOSE)
    assert [inside for inside, outside in published if inside != outside] == [], (
        "clients are told Weir's ports"
    )
    ports = set()
    for text, _ in published:
        first, _, last = text.partition("-")
        ports |= set(range(int(first), int(last or first) + 1))
    assert settings.admin is not None
    needed = {settings.listen.port, settings.ports.first, settings.admin.port}
    assert needed <= ports
    assert (settings.listen.port, settings.settings.advertised_host) == (19092, "localhost")
    (node_id,) = re.findall(r'KAFKA_NODE_ID: "(\d+)"', COMPOSE)
    assert settings.ports.port(int(node_id)) == settings.ports.first
    assert f"PLAINTEXT://{settings.settings.upstream}" in COMPOSE


def test_the_systemd_unit_gives_weir_drain_time_and_descriptors() -> None:
    unit = service()["Service"]
    program, command, *arguments = shlex.split(unit["ExecStart"])
    assert (Path(program).name, command) == ("weir", "run")
    settings = loaded(arguments).settings
    assert int(unit["LimitNOFILE"]) > 2 * settings.connections_max + 200
    assert int(unit["TimeoutStopSec"].removesuffix("s")) > settings.drain_timeout_s
    assert (unit["KillSignal"], unit["Restart"]) == ("SIGTERM", "always")
    assert "ExecReload" not in unit, "it would seem to reload settings"


@pytest.mark.parametrize("name", ["compose.yaml", "prometheus.yml", "alerts.yml"])
def test_yaml_is_indented_by_spaces(name: str) -> None:
    assert "\t" not in (DEPLOY / name).read_text("utf-8")
