"""A real broker, and what a consumer reads from it."""

import base64
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

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
    """A cluster of one broker, with its class path, a folder that does not exist, and lines of settings."""

    def __init__(self, classes: str, home: Path, more: str = "") -> None:
        home.mkdir()
        self.classes, self.logs, self.settings, self.output = classes, home / "logs", home / "server.properties", home / "output"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.settings.write_text(SETTINGS.format(port=self.port, controller=free_port(), logs=self.logs) + more)
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # In one argument: a name may begin with "-".
        subprocess.run(self._java("kafka.tools.StorageTool", "format", f"--cluster-id={name}", "-c", str(self.settings)), check=True)

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", self.classes, *arguments]

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
