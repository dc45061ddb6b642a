"""Questions to ZooKeeper by its four-letter words, and what brokers find in it when they start."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping

from kazoo.client import KazooClient


def ask(host: str, port: int, word: str, timeout_s: float = 5.0) -> str:
    """What ZooKeeper answers to a four-letter word. Raises OSError."""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(word.encode())
        answer = bytearray()
        while part := connection.recv(65536):
            answer += part
    return answer.decode(errors="replace")


def is_ready(host: str, port: int) -> bool:
    try:
        return ask(host, port, "ruok") == "imok"
    except OSError:
        return False


def broker_ids(host: str, port: int) -> set[int]:
    """Ids of the brokers that are registered now. Raises OSError."""
    return parse_broker_ids(ask(host, port, "dump"))


def parse_broker_ids(dump: str) -> set[int]:
    return {int(number) for number in re.findall(r"/brokers/ids/([0-9]+)\b", dump)}


def write(host: str, port: int, nodes: Mapping[str, bytes]) -> None:
    """Create nodes, and those above them. Raises what kazoo raises."""
    client = KazooClient(f"{host}:{port}")
    client.start()
    try:
        for path, content in nodes.items():
            client.create(path, content, makepath=True)
    finally:
        client.stop()
        client.close()
