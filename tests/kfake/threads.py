"""A cluster's brokers at sockets of the loopback interface, a thread for each connection."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from tests.kfake.cluster import HOST, Cluster
from tests.wire.connection import receive_frame
from weir.proxy.addresses import Address


class Brokers:
    """Brokers with these node ids, each at a free port; a context manager. Handlers may block."""

    def __init__(self, cluster: Cluster, node_ids: Iterable[int] = (0,)) -> None:
        self.cluster = cluster
        self._servers = {node_id: self._server(node_id) for node_id in node_ids}
        for node_id, server in self._servers.items():
            cluster.nodes[node_id] = Address(HOST, int(server.server_address[1]))
        self.ports = [cluster.nodes[node_id].port for node_id in self._servers]
        self._stopped = threading.Event()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports[0]}"

    def __enter__(self) -> Self:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self, *node_ids: int) -> None:
        """Refuse clients of these brokers from now on, of all if none is named. Open connections stay."""
        for node_id in node_ids or tuple(self._servers):
            server = self._servers.pop(node_id)
            server.shutdown()
            server.server_close()
        if not self._servers:
            self._stopped.set()

    def wait_for_stop(self) -> None:
        self._stopped.wait()

    def answer(self, connection: socket.socket, frame: bytes, node_id: int) -> None:
        connection.sendall(self.cluster.answer(frame, int(1000 * time.monotonic()), node_id))

    def _server(self, node_id: int) -> socketserver.ThreadingTCPServer:
        brokers = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError, EOFError, ValueError, struct.error):
                    tls = brokers.cluster.tls
                    connection = self.request if tls is None else tls.wrap_socket(self.request, True)
                    with connection:
                        while True:
                            brokers.answer(connection, receive_frame(connection), node_id)

        server = socketserver.ThreadingTCPServer((HOST, 0), Handler)
        server.daemon_threads = True
        return server
