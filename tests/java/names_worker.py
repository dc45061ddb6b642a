"""Names as Java and Kafka make them. What a job and its answer hold is in `names.py`."""

from __future__ import annotations

import base64
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.java.process import do_job


def mapped(java: Any, rules: str, subject: str) -> str | None:
    try:
        mapper = java.org.apache.kafka.common.security.ssl.SslPrincipalMapper.fromRules(rules)
        name: str = mapper.getName(subject)
    except Py4JJavaError:
        return None
    return name


def work(java: Any, job: dict[str, Any]) -> dict[str, Any]:
    principal = java.javax.security.auth.x500.X500Principal
    subjects = [principal(base64.b64decode(name)).getName() for name in job["names"]]
    return {"subjects": subjects, "names": [mapped(java, *case) for case in job["mappings"]]}


if __name__ == "__main__":
    do_job(work)
