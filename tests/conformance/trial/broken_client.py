"""A small Kafka client: sends three batches with an idempotent producer, and reads them back.

Usage: python broken_client.py HOST:PORT TOPIC
"""

from __future__ import annotations

import socket
import struct
import sys
import time

PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 18, 22
CLIENT_ID = b"small-client"
BATCHES = (
    (b"first", b"second", b"third"),
    (b"fourth", b"fifth", b"a longer value, to see whether it is read as well"),
    (b"seventh", b"eighth", b"ninth"),
)
NO_TAGS = b"\0"


def uvarint(value: int) -> bytes:
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if value == 0 and not byte & 0x40:
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def compact_bytes(value: bytes | None) -> bytes:
    return uvarint(0) if value is None else uvarint(len(value) + 1) + value


def compact_array(elements: list[bytes]) -> bytes:
    return uvarint(len(elements) + 1) + b"".join(elements)


def tagged_fields(fields: dict[int, bytes]) -> bytes:
    out = uvarint(len(fields))
    for tag, value in fields.items():
        out += uvarint(tag) + uvarint(len(value)) + value
    return out


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record(offset_delta: int, timestamp_delta: int, value: bytes) -> bytes:
    attributes, no_key, no_headers = b"\0", varint(-1), varint(0)
    body = attributes + varint(timestamp_delta) + varint(offset_delta) + no_key
    body += varint(len(value)) + value + no_headers
    return varint(len(body)) + body


def record_batch(values: tuple[bytes, ...], producer_id: int, epoch: int, sequence: int) -> bytes:
    now_ms = int(time.time() * 1000)
    records = [record(i, 0, value) for i, value in enumerate(values)]
    body = struct.pack(">hiqq", 0, len(records), now_ms, now_ms)  # attributes, offsets, timestamps
    body += struct.pack(">qhi", producer_id, epoch, sequence)
    body += struct.pack(">i", len(records)) + b"".join(records)
    magic = b"\2"
    crc = crc32c(magic + body)
    leader_epoch = struct.pack(">i", -1)
    batch = leader_epoch + magic + struct.pack(">I", crc) + body
    return struct.pack(">qi", 0, len(batch)) + batch


class Reader:
    """Reads the fields of a response."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, form: str) -> int:
        return int(struct.unpack(">" + form, self.take(struct.calcsize(form)))[0])

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def bytes(self) -> bytes:
        return self.take(max(0, self.uvarint() - 1))

    def count(self) -> int:
        return max(0, self.uvarint() - 1)

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())


class Client:
    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self.connection = socket.create_connection(self.address, 30)
        self.correlation_id = 1

    def reconnect(self) -> None:
        self.connection.close()
        self.connection = socket.create_connection(self.address, 30)

    def send(self, api: int, version: int, body: bytes) -> None:
        header = struct.pack(">hhih", api, version, self.correlation_id, len(CLIENT_ID)) + CLIENT_ID + NO_TAGS
        self.connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)

    def receive(self, header_tags: bool = True) -> Reader:
        response = Reader(self.read(struct.unpack(">i", self.read(4))[0]))
        if response.number("i") != self.correlation_id:
            raise ValueError("the response has another correlation id")
        if header_tags:
            response.tags()
        return response

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data

    def api_versions(self) -> dict[int, tuple[int, int]]:
        self.send(API_VERSIONS, 3, compact_bytes(b"small-client") + compact_bytes(b"0.1") + NO_TAGS)
        response = self.receive(header_tags=False)
        if error := response.number("h"):
            raise ValueError(f"ApiVersions: error {error}")
        ranges = {}
        for _ in range(response.count()):
            api, lowest, highest = (response.number("h") for _ in range(3))
            ranges[api] = lowest, highest
            response.tags()
        return ranges

    def metadata(self, topic: bytes) -> tuple[bytes, bytes]:
        """Return the ids of the cluster and of the topic."""
        topics = compact_array([bytes(16) + compact_bytes(topic) + NO_TAGS])
        create, cluster_operations, topic_operations = b"\1", b"\0", b"\0"
        body = topics + create + cluster_operations + topic_operations + NO_TAGS
        for version in (13, 12):
            try:
                self.send(METADATA, version, body)
                response = self.receive()
                break
            except ConnectionError:  # an older broker
                self.reconnect()
        response.number("i")  # throttle_time_ms
        for _ in range(response.count()):
            node, host, port = response.number("i"), response.bytes(), response.number("i")
            response.bytes()  # rack
            response.tags()
            print(f"broker {node} at {host.decode()}:{port}")
        cluster_id = response.bytes()
        response.number("i")  # controller
        response.count()  # one topic
        if error := response.number("h"):
            raise ValueError(f"Metadata: error {error}")
        response.bytes()
        return cluster_id, response.take(16)

    def init_producer_id(self) -> tuple[int, int]:
        no_transaction, timeout_ms = compact_bytes(None), 60000
        self.send(INIT_PRODUCER_ID, 4, no_transaction + struct.pack(">iqh", timeout_ms, -1, -1) + NO_TAGS)
        response = self.receive()
        response.number("i")  # throttle_time_ms
        if error := response.number("h"):
            raise ValueError(f"InitProducerId: error {error}")
        return response.number("q"), response.number("h")

    def produce(self, topic: bytes, partition: int, batch: bytes) -> None:
        data = struct.pack(">i", partition) + compact_bytes(batch) + NO_TAGS
        topics = compact_array([compact_bytes(topic) + compact_array([data]) + NO_TAGS])
        no_transaction, acks, timeout_ms = compact_bytes(None), -1, 10000
        self.send(PRODUCE, 9, no_transaction + struct.pack(">hi", acks, timeout_ms) + topics + NO_TAGS)
        response = self.receive()
        response.count()  # one topic
        response.bytes()
        response.count()  # one partition
        response.number("i")
        error, offset = response.number("h"), response.number("q")
        print(f"produced to partition {partition}: error {error}, offset {offset}")

    def ask_for_records(self, cluster_id: bytes, topic_id: bytes, partition: int) -> None:
        body = struct.pack(">iiibii", 500, 1, 1 << 20, 0, 0, -1)  # times, sizes, isolation, no session
        wanted = struct.pack(">iiqiqi", partition, -1, 0, -1, -1, 1 << 20) + NO_TAGS
        body += compact_array([topic_id + compact_array([wanted]) + NO_TAGS])
        forgotten, rack = compact_array([]), compact_bytes(None)
        consumer = struct.pack(">iq", -1, -1) + NO_TAGS
        body += forgotten + rack + tagged_fields({1: consumer, 0: compact_bytes(cluster_id)})
        self.send(FETCH, 15, body)

    def records(self) -> tuple[int, bytes]:
        """Return the high watermark and the records of one partition."""
        response = self.receive()
        response.number("i")  # throttle_time_ms
        if error := response.number("h"):
            raise ValueError(f"Fetch: error {error}")
        response.number("i")  # session
        response.count()  # one topic
        response.take(16)
        response.count()  # one partition
        response.number("i")
        if error := response.number("h"):
            raise ValueError(f"Fetch: error {error}")
        high_watermark = response.number("q")
        response.take(16)  # last stable offset, log start offset
        for _ in range(response.count()):  # aborted transactions
            response.take(16)
            response.tags()
        response.number("i")  # preferred replica
        return high_watermark, response.bytes()


def main(address: str, name: str) -> None:
    host, _, port = address.rpartition(":")
    client, topic = Client(host, int(port)), name.encode()
    print(f"the broker has {len(client.api_versions())} APIs")
    cluster_id, topic_id = client.metadata(topic)
    producer_id, epoch = client.init_producer_id()
    for sequence, values in enumerate(BATCHES):
        client.produce(topic, 0, record_batch(values, producer_id, epoch, sequence))
        time.sleep(0.2)
    for partition in (0, 1):
        client.ask_for_records(cluster_id, topic_id, partition)
    for partition in (0, 1):
        high_watermark, records = client.records()
        print(f"partition {partition}: {len(records)} bytes, high watermark {high_watermark}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
