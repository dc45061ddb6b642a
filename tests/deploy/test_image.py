"""The image of deploy/Dockerfile and the Debian package, built and run by a container engine, before a real
broker.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer

from tests.clients import create_topic
from tests.deploy.container_engine import (
    BASE,
    BUILD_S,
    Engine,
    NoEngineError,
    archive,
    hindrance,
    running_engine,
)
from tests.kafka.cluster import Cluster
from tests.kafka.ports import free_range
from tests.rooms import copy_sources
from tools import debian

pytestmark = [
    pytest.mark.image,
    pytest.mark.timeout(2 * 3600),
    pytest.mark.skipif(hindrance() is not None, reason=str(hindrance())),
]
USER: Final = "65532"
PATIENCE_S: Final = 120.0
CONFINED: Final = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host")
RECORDS: Final = 100
SUITE: Final = {11: "bookworm", 13: "trixie"}.get(sys.version_info.minor)
"""The release of Debian whose Python the package is for."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with ExitStack() as stack:
        try:
            found = stack.enter_context(running_engine())
        except NoEngineError as error:
            pytest.skip(str(error))
        yield found


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    cluster = Cluster("4.4.0")
    cluster.start()
    try:
        yield cluster.bootstrap
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    ("compiled", "build"), [("0", "pure Python"), ("1", "compiled")], ids=["plain", "compiled"]
)
def test_the_image_serves_clients_read_only_without_privileges(
    engine: Engine, upstream: str, compiled: str, build: str
) -> None:
    tag, began_s = f"weir:{compiled}", time.monotonic()
    engine.import_base(BASE)
    engine.build(tag, {"COMPILE": compiled})
    seconds, base = time.monotonic() - began_s, engine.size(BASE)
    print(f"{build}: built in {seconds:.0f} s, {(engine.size(tag) - base) / 1e6:.0f} MB and the base")
    assert build in engine.docker("run", "--rm", "--network=host", tag, "--version")
    serves_confined(engine, upstream, tag)


@pytest.mark.skipif(SUITE is None, reason="needs the Python of a release of Debian")
def test_the_plain_debian_package_serves_clients_and_leaves_no_program(
    engine: Engine, upstream: str, tmp_path: Path
) -> None:
    """On a Debian without Python and pip, apt installs what the package needs."""
    began_s = time.monotonic()
    sources = tmp_path / "sources"
    sources.mkdir()
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path))
    subprocess.run([*pip, str(copy_sources(sources))], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    package = debian.build(wheel, tmp_path)
    seconds, size = time.monotonic() - began_s, package.stat().st_size
    print(f"Debian package: built in {seconds:.0f} s, {size / 1e6:.0f} MB")
    engine.import_base(f"debian:{SUITE}", str(SUITE), "ca-certificates")
    install = f"apt-get update && apt-get install --yes --no-install-recommends /package/{package.name}"
    folder, name = f"--volume={tmp_path}:/package:ro", "weir-installed"
    base = ["--network=host", folder, f"--name={name}", f"debian:{SUITE}"]
    engine.docker("run", *base, "sh", "-c", install, wait_s=BUILD_S)
    engine.docker("commit", name, "weir:package")
    assert "pure Python" in engine.docker("run", "--rm", "weir:package", "weir", "--version")
    serves_confined(engine, upstream, "weir:package", "weir")
    remove = (
        "apt-get purge --yes weir && ! ls -d /opt/weir /etc/weir /usr/bin/weir /usr/lib/systemd/system/weir*"
    )
    engine.docker("run", "--rm", "weir:package", "sh", "-c", remove)


def test_a_killed_debootstrap_leaves_nothing_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "debootstrap"
    tool.write_text('#!/bin/sh\nmkdir -p "$4/proc"\nmount -t proc proc "$4/proc"\nkill -9 $$\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NoEngineError):
        archive("none", "none", "none")
    assert "weir-base-" not in Path("/proc/self/mounts").read_text("utf-8")


def serves_confined(engine: Engine, upstream: str, tag: str, *command: str) -> None:
    """Run Weir read-only, without privileges; carry records through it, and stop it. `command`: its name, for
    an image without settings.
    """
    port = free_range(6)
    options = [
        f"--upstream={upstream}",
        f"--listen=127.0.0.1:{port}",
        f"--broker-ports={port + 1}-{port + 3}",
    ]
    often = ["--health-interval=1s", f"--env=WEIR_ADMIN=127.0.0.1:{port + 4}"]
    if command:
        often += ["--health-cmd=weir check --running", f"--user={USER}:{USER}"]
    weir = engine.docker("run", "--detach", *CONFINED, *often, tag, *command, "run", *options)
    try:
        until(lambda: engine.docker("inspect", "--format={{.State.Health.Status}}", weir) == "healthy")
        is_confined(engine, weir)
        nobody = engine.tried(
            "exec", f"--env=WEIR_ADMIN=127.0.0.1:{port + 5}", weir, "weir", "check", "--running"
        )
        assert nobody.returncode == 1
        carries_records(f"127.0.0.1:{port}", tag.replace(":", "-"))
        engine.docker("stop", "--time=60", weir)
    finally:
        print(engine.docker("logs", weir))
    assert engine.docker("inspect", "--format={{.State.ExitCode}}", weir) == "0"


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)  # between questions; nothing is decided by it


def is_confined(engine: Engine, weir: str) -> None:
    pid = engine.docker("inspect", "--format={{.State.Pid}}", weir)
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    assert re.search(rf"^Uid:\s+{USER}\s+{USER}\s", status, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert "Read-only file system" in engine.tried("exec", weir, "touch", "/tmp/file").stdout  # noqa: S108  # the container's


def carries_records(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    sent = [str(number).encode() for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in sent:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes | None] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(got) < RECORDS and time.monotonic() < deadline_s:
        got += [one.value() for one in consumer.consume(RECORDS, 1)]
    consumer.close()
    assert got == sent
