"""Names as Java and Kafka make them, in a Java process: `java_names_worker.py < job.json > names.json`.

What a job and its answer hold is in `java_names.py`. Needs py4j.
"""

import base64
import json
import sys
from typing import Any

from py4j.java_gateway import (
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)
from py4j.protocol import Py4JJavaError


def mapped(jvm: Any, rules: str, subject: str) -> str | None:
    """The principal's name, None where Kafka fails."""
    try:
        mapper = jvm.org.apache.kafka.common.security.ssl.SslPrincipalMapper.fromRules(rules)
        name: str = mapper.getName(subject)
    except Py4JJavaError:
        return None
    return name


def main() -> None:
    """Do the job on stdin."""
    job = json.loads(sys.stdin.readline())
    port = launch_gateway(
        classpath=job["classpath"],
        jarpath=job["jar"],
        java_path=job["java"],
        javaopts=["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *job["options"]],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    principal = gateway.jvm.javax.security.auth.x500.X500Principal
    subjects = [principal(base64.b64decode(name)).getName() for name in job["names"]]
    names = [mapped(gateway.jvm, *case) for case in job["mappings"]]
    gateway.shutdown()
    json.dump({"subjects": subjects, "names": names}, sys.stdout)


if __name__ == "__main__":
    main()
