"""Batches written by librdkafka: produced to its mock broker, and fetched from there as raw bytes."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import kolumn
from kit.streams import CODECS

T = 1_700_000_000_000
TOPIC = "mocked"


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def fetch(address: tuple[str, int], offset: int) -> bytes:
    """Raw record bytes of partition 0 from an offset on, by one handwritten Fetch request of version 4."""
    body = struct.pack(">iiiib", -1, 100, 1, 1 << 24, 0)
    body += struct.pack(">i", 1) + _string(TOPIC) + struct.pack(">iiqi", 1, 0, offset, 1 << 24)
    request = struct.pack(">hhi", 1, 4, 77) + _string("test") + body
    with socket.create_connection(address, timeout=10) as connection, connection.makefile("rwb") as stream:
        stream.write(struct.pack(">i", len(request)) + request)
        stream.flush()
        response = stream.read(struct.unpack(">i", stream.read(4))[0])
    # correlation id, throttle time, one topic, its name, one partition
    at = 4 + 4 + 4 + len(_string(TOPIC)) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", response, at)
    assert error in (0, 1), f"error {error}"
    at += struct.calcsize(">ihqqi") + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", response, at)
    return response[at + 4 : at + 4 + max(size, 0)]


@pytest.fixture(params=CODECS)
def producer(request: pytest.FixtureRequest) -> Iterator[tuple[str, Producer]]:
    settings = {"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "compression.type": request.param, "linger.ms": 50}
    made = Producer({**settings, "enable.idempotence": True, "log_level": 0})
    yield request.param, made
    made.flush(10)


def test_records(producer: tuple[str, Producer], tmp_path: Path) -> None:
    codec, client = producer
    sent = []
    for i in range(300):
        key, value = (None, b"")[i % 2] if i % 5 == 0 else b"key-%d" % i, None if i % 7 == 0 else b"value %d " % i * (i % 40)
        headers = [("h", b"%d" % i), ("", b""), ("n", None)][: i % 4]
        client.produce(TOPIC, value, key, partition=0, timestamp=T + i * (-1) ** i, headers=headers)
        sent.append((i, key, value, T + i * (-1) ** i, [{"key": name, "value": data} for name, data in headers]))
        if i % 60 == 59:
            assert client.flush(20) == 0
    (broker,) = client.list_topics(timeout=10).brokers.values()
    path, at = tmp_path / "00000000000000000000.log", 0
    path.write_bytes(b"")
    while at < len(sent):
        data = fetch((broker.host, broker.port), at)
        assert data
        with path.open("ab") as file:
            file.write(data)
        at = kolumn.batches(path)["lastOffset"].to_pylist()[-1] + 1
    table = kolumn.read(path, columns=["offset", "key", "value", "timestampMs", "headers"])
    assert [tuple(row.values()) for row in table.to_pylist()] == sent
    assert kolumn.verify(path).ok
    # librdkafka does not compress a batch that would not become smaller.
    assert set(kolumn.batches(path)["codec"].to_pylist()) <= {codec, "none"}
    assert codec in kolumn.batches(path)["codec"].to_pylist()
