"""Batches written by librdkafka: produced to its mock broker, and fetched from there as raw bytes."""

import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import kolumn
from kit.encoder import Record, batch
from kit.streams import CODECS
from kolumn.cli import app

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


# `kolumn cat -f` prints what kcat prints, by each of its tokens; a broker that librdkafka mocks serves the same records.


KCAT = shutil.which("kcat") or shutil.which("kafkacat")
ROWS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"ada", b'{"n": 1}', []), (b"bob", b"two\nlines", [("trace", b"x1"), ("none", None), ("empty", b"")]), (b"eve", None, []),
    (None, b"\xff\xfe bytes", [("h", b"\xe9")]), (b"", b"", []),
]  # fmt: skip
TEMPLATES = [r"Topic %t [%p] at offset %o: key %k: %s\n", r"%R%s", r"%K/%S %T %h|\t%%\r\n", r"\x41\x042\65\0101\q\\%o;"]


@pytest.mark.skipif(KCAT is None, reason="there is no kcat")
@pytest.mark.parametrize("template", TEMPLATES)
def test_as_kcat(template: str, tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    records = [
        Record(i, key, value, T + i, tuple((name.encode(), data) for name, data in headers)) for i, (key, value, headers) in enumerate(ROWS)
    ]
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(batch(records))
    ours = CliRunner().invoke(app, ["cat", "-t", template, str(tmp_path / "orders-0")])
    assert ours.stdout_bytes == as_kcat_prints(template)


def as_kcat_prints(template: str) -> bytes:
    """Its output. The mocked broker is a part of the producer, whose thread serves it."""
    producer = Producer({"test.mock.num.brokers": 1})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    for i, (key, value, headers) in enumerate(ROWS):
        producer.produce("orders", value, key, partition=0, timestamp=T + i, headers=headers)
    producer.flush(10)
    command = [
        str(KCAT), "-C", "-q", "-e", "-b", f"{broker.host}:{broker.port}", "-t", "orders", "-p", "0", "-o", "beginning", "-f", template,
    ]  # fmt: skip
    done = threading.Event()
    thread = threading.Thread(target=lambda: [producer.poll(0.1) for _ in iter(done.is_set, True)])
    thread.start()
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
    finally:
        done.set()
        thread.join()
