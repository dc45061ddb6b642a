"""Write a version's lock file: Maven resolves what a broker and Kafka's command-line tools need at run time.

Only who adds a Kafka version needs Maven; everyone else downloads what the lock file names.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.kafka.jars import LOCK_FILES, Jar, JarError, version_tuple

# Kafka Connect's REST server, which kafka-tools draws in and nothing here starts.
_UNNEEDED = re.compile(
    r"org\.eclipse\.jetty.*|org\.glassfish\..*|org\.javassist:.*|javax\.(servlet|ws|validation|annotation)\..*"
    r"|javax\.(servlet|annotation):.*|jakarta\..*|com\.sun\.activation:.*|io\.swagger.*|io\.github\.classgraph:.*"
    r"|org\.reflections:.*|org\.codehaus\.plexus:.*|org\.apache\.maven:.*|org\.apache\.kafka:connect-.*"
    r"|com\.fasterxml\.jackson\.(jaxrs|jakarta\.rs):.*"
)


def write_lock(version: str) -> Path:
    """Resolve a Kafka version and write its lock file. Raises JarError if Maven is missing or fails."""
    path = LOCK_FILES / f"{version}.txt"
    head = f"Kafka {version}: written by `python -m tests.kafka lock {version}`"
    write(path, head, _roots(version), _UNNEEDED)
    return path


def write(path: Path, head: str, roots: Iterable[str], unneeded: re.Pattern[str]) -> None:
    """Write the jars that these artifacts need. Raises JarError."""
    if shutil.which("mvn") is None:
        raise JarError("adding a version needs Maven's `mvn` (3.6 or newer) on the PATH")
    with tempfile.TemporaryDirectory(prefix="weir-lock-") as directory:
        Path(directory, "pom.xml").write_text(pom(roots))
        target = Path(directory, "jars")
        command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += ["-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={target}"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise JarError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        jars = [_jar(path, target) for path in sorted(target.rglob("*.jar"))]
    lines = [f"# {head}", *(str(jar) for jar in jars if not unneeded.fullmatch(jar.coordinates))]
    path.write_text("\n".join(lines) + "\n")


def _roots(version: str) -> list[str]:
    """What to resolve: the broker, its tools, and what they leave to the operator or to an older Java."""
    number = version_tuple(version)
    scala = "2.13" if number >= (2, 4) else "2.12"
    roots = [f"org.apache.kafka:kafka_{scala}:{version}", f"org.apache.kafka:kafka-tools:{version}"]
    if number < (1, 0):
        roots.append("javax.xml.bind:jaxb-api:2.3.1")  # part of Java only up to 10
    if number >= (4, 0):
        roots.append("org.slf4j:slf4j-simple:1.7.36")  # older tools bring a binding
    return roots


def pom(roots: Iterable[str]) -> str:
    """Maven's description of what to resolve: group:artifact:version, perhaps with :classifier."""
    names = ("groupId", "artifactId", "version", "classifier")
    dependencies = [
        "".join(f"<{name}>{value}</{name}>" for name, value in zip(names, root.split(":"), strict=False))
        for root in roots
    ]
    body = "".join(f"<dependency>{dependency}</dependency>" for dependency in dependencies)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>weir</groupId><artifactId>lock</artifactId><version>1</version>"
        f"<dependencies>{body}</dependencies></project>"
    )


def _jar(path: Path, repository: Path) -> Jar:
    *group, artifact, version, name = path.relative_to(repository).parts
    classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").replace("-", ":", 1)
    content = path.read_bytes()
    return Jar(
        f"{'.'.join(group)}:{artifact}:{version}{classifier}",
        hashlib.sha256(content).hexdigest(),
        len(content),
    )
