"""A real broker starts on what `recover` wrote, and serves every record of it."""

import base64
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kolumn
from foreign.test_dump_log_segments import broker as broker
from kit.corpus import HERE
from kit.replicas import copy, last_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(map(shutil.which, ("java", "mvn"))), reason="needs Java and Maven on the PATH"),
]
NAMES = (
    *("transactional/txn-lz4-0", "transactional/txn-open-0", "v2-java/java-zstd-0", "upgraded/upgraded-lz4-0"),
    *("compacted/compact-zstd-0", "v1/v1-lz4-0", "v0/v0-lz4-0"),
)
FOLDERS = [HERE / name for name in NAMES if (HERE / name).is_dir()]
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
log.retention.ms=-1
log.cleaner.enable=false
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Cluster:
    """A cluster of one broker."""

    def __init__(self, classes: str, home: Path) -> None:
        home.mkdir()
        self.classes, self.logs, self.settings, self.output = classes, home / "logs", home / "server.properties", home / "output"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.settings.write_text(SETTINGS.format(port=self.port, controller=free_port(), logs=self.logs))
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        subprocess.run(self._java("kafka.tools.StorageTool", "format", "-t", name, "-c", str(self.settings)), check=True)

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-cp", self.classes, *arguments]

    @contextmanager
    def running(self) -> Iterator[None]:
        with open(self.output, "ab") as output:
            process = subprocess.Popen(self._java("kafka.Kafka", str(self.settings)), stdout=output, stderr=output)
        try:
            end = time.monotonic() + 120
            while not self._listens():
                assert process.poll() is None, self.output.read_text()[-3000:]
                assert time.monotonic() < end, self.output.read_text()[-3000:]
                time.sleep(0.3)
            yield
        finally:
            process.terminate()
            process.wait(60)

    def _listens(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def forget(self, topics: set[str]) -> None:
        """Make the last shutdown an unclean one, of a broker that knew nothing of some topics."""
        (self.logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
        for path in self.logs.glob("*-checkpoint"):
            lines = [line for line in path.read_text().splitlines()[2:] if line.rsplit(" ", 2)[0] not in topics]
            path.write_text("".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)))

    def records(self, topic: str, isolation: str) -> list[dict[str, Any]]:
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "g", "isolation.level": isolation, "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, 0, -2)])
        found: list[dict[str, Any]] = []
        while True:
            message = consumer.poll(60)
            assert message is not None, f"{topic}: nothing came after {len(found)} records"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                consumer.close()
                return found
            found.append({"offset": message.offset(), "key": message.key(), "value": message.value()})


def test_a_broker_serves_every_record(broker: str, tmp_path: Path) -> None:
    copies = [tmp_path / "b1", tmp_path / "b2"]
    for folder in FOLDERS:
        for number, disk in enumerate(copies):
            # Every tenth batch is damaged in both.
            last_bytes(copy(folder, disk), lambda batch, number=number: batch % 5 == number or batch % 10 == 7)  # type: ignore[misc]
    done = kolumn.recover(copies, tmp_path / "out")
    assert done.partitions.num_rows == len(FOLDERS)
    assert not done.ok
    topics = {folder.name.removesuffix("-0") for folder in FOLDERS}
    cluster = Cluster(broker, tmp_path / "broker")
    with cluster.running():
        admin = AdminClient({"bootstrap.servers": cluster.address})
        made = admin.create_topics([NewTopic(topic, 1, 1) for topic in sorted(topics)])
        for one in made.values():
            one.result(60)
        time.sleep(1)
    for folder in FOLDERS:
        place = cluster.logs / folder.name
        metadata = (place / "partition.metadata").read_bytes()
        shutil.rmtree(place)
        shutil.copytree(tmp_path / "out" / folder.name, place)
        (place / "partition.metadata").write_bytes(metadata)
    cluster.forget(topics)
    columns = ["offset", "key", "value"]
    with cluster.running():
        for folder in FOLDERS:
            for isolation in ("read_uncommitted", "read_committed"):
                expected = kolumn.read(tmp_path / "out" / folder.name, columns=columns, isolation_level=isolation).to_pylist()  # type: ignore[arg-type]
                assert cluster.records(folder.name.removesuffix("-0"), isolation) == expected, (folder.name, isolation)
                assert expected or isolation == "read_committed"
