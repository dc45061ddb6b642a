"""Write the lists of locked jars: `python -m bench.jars.lock`.

Run this to change a version; it needs Maven's `mvn`.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.jars import LISTS, ClassifiedJar
from tests.kafka.lock import pom

ROOTS: Final = {
    "kroxylicious": (
        "io.kroxylicious:kroxylicious-runtime:0.12.0",
        "io.netty:netty-transport-native-epoll:4.1.121.Final:linux-aarch_64",
        "org.slf4j:slf4j-simple:2.0.17",
    ),
    "ecj": ("org.eclipse.jdt:ecj:3.33.0",),
    "streams": ("org.apache.kafka:kafka-streams:3.9.1",),
}
"""Maven coordinates by list; each list has the jars that these artifacts need at run time."""
_UNNEEDED: Final = re.compile(r".*:osx-x86_64|.*netty-incubator-transport-native-io_uring:.*")
"""Jars to leave out: native code for macOS on x86-64, and for io_uring, which is off by default."""


def write(name: str) -> None:
    """Resolve the dependencies of a list, and write the list. Raises CalledProcessError if Maven fails."""
    with tempfile.TemporaryDirectory(prefix="weir-lock-") as directory:
        jars = _resolve(Path(directory), ROOTS[name])
    head = f"# {' '.join(ROOTS[name])}: written by `python -m bench.jars.lock`"
    (LISTS / f"{name}.txt").write_text("\n".join([head, *map(str, jars)]) + "\n")


def _resolve(directory: Path, roots: tuple[str, ...]) -> list[ClassifiedJar]:
    (directory / "pom.xml").write_text(pom(roots))
    command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += ["-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={directory / 'jars'}"]
    subprocess.run(command, cwd=directory, stdout=sys.stderr, check=True)
    found = (_jar(path, directory / "jars") for path in sorted((directory / "jars").rglob("*.jar")))
    return [jar for jar in found if not _UNNEEDED.fullmatch(jar.coordinates)]


def _jar(path: Path, repository: Path) -> ClassifiedJar:
    *group, artifact, version, name = path.relative_to(repository).parts
    classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    coordinates = ":".join([".".join(group), artifact, version, *([classifier] if classifier else [])])
    content = path.read_bytes()
    return ClassifiedJar(coordinates, hashlib.sha256(content).hexdigest(), len(content))


if __name__ == "__main__":
    for each in sys.argv[1:] or ROOTS:
        write(each)
