"""The commands of deploy/Dockerfile, replayed without a container engine. They build no image."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.cluster import cluster
from tests.deploy.dockerfile import committed, copied
from tests.deploy.image_stages import (
    USER,
    Replay,
    base_python,
    committed_context,
    confined,
    python_minor,
    stages,
)
from tests.kafka.ports import free_range

PATIENCE_S: Final = 60.0
BASE: Final = base_python()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),  # the compiler takes minutes
    pytest.mark.skipif(BASE is None, reason="needs a Python with a folder of its own, such as pyenv's"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, which the image installs"),
]


@pytest.fixture
def image() -> Iterator[Replay]:
    """The folder after both stages: those files of the image that are Weir's."""
    assert BASE is not None
    build, final = stages()
    root = Path(tempfile.mkdtemp(prefix="weir-image-"))  # pytest's folders are closed to other users
    try:
        root.chmod(0o755)
        committed_context(root / "context", committed(*copied()))
        replay = Replay(root, BASE)
        replay.build(root / "context", build)
        shutil.rmtree(root / "source")
        committed_context(root / "context", committed("deploy/config"))
        shutil.copytree(root / "context/deploy/config", root / "etc/weir")
        shutil.rmtree(root / "context")
        (env,) = (text for name, text in final if name == "ENV")
        words = dict(word.split("=", 1) for word in env.split())
        path = words.pop("PATH").replace("$PATH", replay.variables["PATH"])
        replay.variables |= {"PATH": replay.placed(path)} | {
            name: replay.placed(value) for name, value in words.items()
        }
        yield replay
    finally:
        shutil.rmtree(root)


def test_the_images_commands_make_a_compiled_weir_that_serves_read_only_without_privileges(
    image: Replay,
) -> None:
    """One test, because the compiler takes minutes, and tests of a module may run in several processes."""
    has_only_weir_and_its_dependencies(image)
    is_compiled(image)
    begin = confined(image.root)
    if begin is None:
        pytest.skip(
            "Weir is built and compiled; the rest needs root, unshare and setpriv (Debian: util-linux)"
        )
    cannot_write(image, begin)
    becomes_ready(image, begin)


def has_only_weir_and_its_dependencies(image: Replay) -> None:
    script = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in image.run("python", "-c", script).split()}
    assert {"kafka-weir", "trio", "msgspec", "confluent-kafka"} <= names
    assert names & {"pip", "mypy", "setuptools", "pytest", "pyspark"} == set()


def is_compiled(image: Replay) -> None:
    said = image.run("weir", "--version")
    print(said)
    assert "compiled" in said
    minor = python_minor()
    if (image.root / f"usr/local/bin/python{minor}").exists():
        assert f"Python {minor}." in said


def cannot_write(image: Replay, begin: list[str]) -> None:
    """Check that the folder is mounted read-only, not only closed by its permissions."""
    image.root.chmod(0o777)
    try:
        done = subprocess.run([*begin, "touch", "file"], capture_output=True, text=True, check=False)
    finally:
        image.root.chmod(0o755)
    assert "Read-only file system" in done.stderr


def becomes_ready(image: Replay, begin: list[str]) -> None:
    _build, final = stages()
    assert f"USER {USER}:{USER}" in [f"{name} {text}" for name, text in final]
    port = free_range(4)
    environment = image.variables | {"WEIR_ADMIN": f"127.0.0.1:{port + 3}"}
    with cluster(1) as (upstream,), tempfile.TemporaryFile() as log:
        options = [f"--upstream=127.0.0.1:{upstream}", f"--listen=127.0.0.1:{port}", "--first-node-id=0"]
        command = [*begin, "weir", "run", *options, f"--broker-ports={port + 1}-{port + 2}"]
        weir = subprocess.Popen(command, env=environment, cwd=image.root, stdout=log, stderr=log)
        try:
            status = ready(port + 3, weir)
            log.seek(0)
            assert status == 200, log.read().decode()
            status_of_process = Path(f"/proc/{weir.pid}/status").read_text("utf-8")
            assert re.search(rf"^Uid:\s+{USER}\s+{USER}\s", status_of_process, re.MULTILINE)
            assert re.search(r"^CapEff:\s+0+$", status_of_process, re.MULTILINE)
            (check,) = (text for name, text in final if name == "HEALTHCHECK")
            asked = [str(word) for word in json.loads(check[check.index("[") :])]
            image.run(*(word.replace("9644", str(port + 3)) for word in asked))
        finally:
            weir.terminate()
            assert weir.wait(PATIENCE_S) == 0


def ready(port: int, weir: subprocess.Popen[bytes]) -> int:
    """Return the status of /readyz: 200 as soon as Weir answers so, else the latest after `PATIENCE_S`."""
    deadline_s, status = time.monotonic() + PATIENCE_S, 0
    while status != 200 and weir.poll() is None and time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
        except OSError:
            pass
        time.sleep(0.05)  # between questions; nothing is decided by it
    return status
