"""`kolumn cat -f` prints what kcat prints, by each of its tokens; a broker that librdkafka mocks serves the same records."""

import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from kit.encoder import Record, batch
from kolumn.cli import app

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
MOMENT = 1_700_000_000_000
ROWS = [
    (b"ada", b'{"n": 1}', []),
    (b"bob", b"two\nlines", [("trace", b"x1"), ("none", None), ("empty", b"")]),
    (b"eve", None, []),
    (None, b"\xff\xfe bytes", [("h", b"\xe9")]),
    (b"", b"", []),
]
TEMPLATES = [
    r"Topic %t [%p] at offset %o: key %k: %s\n",
    r"%R%s",
    r"%K/%S %T %h|\t%%\r\n",
    r"\x41\x042\65\0101\q\\%o;",
]


@pytest.mark.skipif(KCAT is None, reason="there is no kcat")
@pytest.mark.parametrize("template", TEMPLATES)
def test_as_kcat(template: str, tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    records = [
        Record(i, key, value, MOMENT + i, tuple((name.encode(), data) for name, data in headers))
        for i, (key, value, headers) in enumerate(ROWS)
    ]
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(batch(records))
    ours = CliRunner().invoke(app, ["cat", "-f", template, str(tmp_path / "orders-0")])
    assert ours.stdout_bytes == as_kcat_prints(template)


def as_kcat_prints(template: str) -> bytes:
    """Its output. The mocked broker is a part of the producer, whose thread serves it."""
    producer = Producer({"test.mock.num.brokers": 1})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    for i, (key, value, headers) in enumerate(ROWS):
        producer.produce("orders", value, key, partition=0, timestamp=MOMENT + i, headers=headers)
    producer.flush(10)
    command = [
        str(KCAT),
        "-C",
        "-q",
        "-e",
        "-b",
        f"{broker.host}:{broker.port}",
        "-t",
        "orders",
        "-p",
        "0",
        "-o",
        "beginning",
        "-f",
        template,
    ]
    done = threading.Event()
    thread = threading.Thread(target=lambda: [producer.poll(0.1) for _ in iter(done.is_set, True)])
    thread.start()
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
    finally:
        done.set()
        thread.join()
