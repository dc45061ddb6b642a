"""What Kafka's message classes read and write. `tests.protocol.record` makes the job."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from tests.java.process import do_job


def work(java: Any, job: dict[str, Any]) -> dict[str, Any]:
    kafka = java.org.apache.kafka.common
    return {
        "errors": {error.name(): error.code() for error in kafka.protocol.Errors.values()},
        "messages": {name: recorded(java, name, **told) for name, told in job["messages"].items()},
        "apis": {
            key: headers(kafka.protocol.ApiKeys.forId(int(key)), told) for key, told in job["apis"].items()
        },
        "backs_off": {key: backs_off(java, int(key), told) for key, told in job["responses"].items()},
    }


def recorded(java: Any, name: str, samples: dict[str, str], fields: dict[str, str]) -> dict[str, Any]:
    made = getattr(java.org.apache.kafka.common.message, f"{name}Data")
    sample = {version: read(java, made, version, sample) for version, sample in samples.items()}
    refused = {}
    for field, newest in fields.items():
        alone = made()
        getattr(alone, f"set{field[0].upper()}{field[1:]}")(getattr(sample[newest], field)())
        refused[field] = [version for version in samples if written(java, alone, version) is None]
    return {
        "default": {version: written(java, made(), version) for version in samples},
        "sample": {version: written(java, message, version) for version, message in sample.items()},
        "refused": refused,
    }


def accessor(java: Any, sample: str) -> Any:
    buffer = java.java.nio.ByteBuffer.wrap(bytes.fromhex(sample))
    return java.org.apache.kafka.common.protocol.ByteBufferAccessor(buffer)


def read(java: Any, made: Any, version: str, sample: str) -> Any:
    return made(accessor(java, sample), int(version))


def written(java: Any, message: Any, version: str) -> str | None:
    """The bytes of a message in a version; None if Kafka refuses to write it so."""
    try:
        prefixed = java.org.apache.kafka.common.protocol.MessageUtil.toVersionPrefixedByteBuffer
        return bytes(prefixed(int(version), message).array()[2:]).hex()
    except Py4JJavaError:
        return None


def headers(api: Any, versions: list[int]) -> list[tuple[int, int]]:
    return [(api.requestHeaderVersion(version), api.responseHeaderVersion(version)) for version in versions]


def backs_off(java: Any, api_key: int, samples: dict[str, str]) -> int | None:
    """The first version in which Java's client waits for a throttle time by itself."""
    kafka = java.org.apache.kafka.common
    for version, sample in samples.items():
        body = accessor(java, sample)
        api = kafka.protocol.ApiKeys.forId(api_key)
        parse = kafka.requests.AbstractResponse.parseResponse
        try:
            response = parse(api, body, int(version))
        except Py4JError:  # before 4.0 it took a buffer
            response = parse(api, body.buffer(), int(version))
        if response.shouldClientThrottle(int(version)):
            return int(version)
    return None


if __name__ == "__main__":
    do_job(work)
