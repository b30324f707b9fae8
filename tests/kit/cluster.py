"""Clusters of real brokers, of the version that a class path has: with KRaft, or one broker with ZooKeeper as before Kafka 3.3."""

import base64
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kit.java import free_port, running

LEVELS = ("read_uncommitted", "read_committed")
COMMON = """log.dirs={logs}
listeners=PLAINTEXT://127.0.0.1:{port}
offsets.topic.replication.factor=1
log.retention.ms=-1
log.cleaner.enable=false
"""
KRAFT = """process.roles=broker
node.id={number}
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
"""
# The last line of a name counts.
CONTROLLER = """process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
"""
ZOOKEEPER = """broker.id={number}
zookeeper.connect=127.0.0.1:{controller}
"""


class Broker:
    """One broker: its class path, a folder that does not exist, a free port, and settings in which these are named."""

    def __init__(self, classes: str, home: Path, settings: str, **values: int) -> None:
        home.mkdir(parents=True)
        self.classes, self.logs, self.settings, self.output = classes, home / "logs", home / "server.properties", home / "output"
        self.port = free_port()
        self.settings.write_text(settings.format(logs=self.logs, port=self.port, **values))

    def java(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", self.classes, *arguments]

    def running(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return running(self.java("kafka.Kafka", str(self.settings)), self.port, self.output)


class Cluster:
    """Brokers of one version, with numbers from 1 on; the first is the controller too. `more` is lines of their settings."""

    def __init__(self, classes: str, home: Path, more: str = "", brokers: int = 1, zookeeper: bool = False) -> None:
        self.home, self.controller, self.zookeeper = home, free_port(), zookeeper
        first = COMMON + (ZOOKEEPER if zookeeper else KRAFT + CONTROLLER) + more
        self.brokers = [
            Broker(classes, home / str(number), COMMON + KRAFT + more if number > 1 else first, number=number, controller=self.controller)
            for number in range(1, brokers + 1)
        ]
        self.address = ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)
        self.logs = self.brokers[0].logs
        if not zookeeper:
            self._format(_new_id())

    def _format(self, cluster: str) -> None:
        """Kafka's tool formats the controller's folder; of the others it would write one file."""
        first, *others = self.brokers
        # In one argument: an id may begin with "-".
        command = first.java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(first.settings))
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for number, broker in enumerate(others, 2):
            broker.logs.mkdir()
            lines = "version=1", f"cluster.id={cluster}", f"node.id={number}", f"directory.id={_new_id()}"
            (broker.logs / "meta.properties").write_text("".join(f"{line}\n" for line in lines))

    @contextmanager
    def running(self) -> Iterator[None]:
        """All brokers, until the end."""
        with ExitStack() as stack:
            if self.zookeeper:
                options = ["-Dzookeeper.admin.enableServer=false", "org.apache.zookeeper.server.ZooKeeperServerMain"]
                command = self.brokers[0].java(*options, str(self.controller), str(self.home / "zookeeper"))
                stack.enter_context(running(command, self.controller, self.home / "output"))
            for broker in self.brokers:
                stack.enter_context(broker.running())
            yield

    def create(self, topics: dict[str, dict[str, str]], replicas: Sequence[int] = (1,)) -> None:
        """Topics of one partition with their settings; the first of the replicas leads."""
        admin = AdminClient({"bootstrap.servers": self.address})
        new = [NewTopic(topic, 1, config=settings, replica_assignment=[list(replicas)]) for topic, settings in topics.items()]
        for made in admin.create_topics(new).values():
            made.result(60)
        wait(lambda: all((self.brokers[number - 1].logs / f"{topic}-0").exists() for topic in topics for number in replicas))

    def change(self, topic: str, **settings: str) -> None:
        """Change settings of a topic, whose names have `_` for each point."""
        admin, how = AdminClient({"bootstrap.servers": self.address}), AlterConfigOpType.SET
        entries = [ConfigEntry(name.replace("_", "."), value, incremental_operation=how) for name, value in settings.items()]
        for changed in admin.incremental_alter_configs([ConfigResource("topic", topic, incremental_configs=entries)]).values():
            changed.result(60)

    def replace(self, folders: dict[str, Path]) -> None:
        """Give topics of the first broker, which is stopped, the logs of other folders."""
        for topic, folder in folders.items():
            place = self.logs / f"{topic}-0"
            metadata = place / "partition.metadata"
            own = metadata.read_bytes() if metadata.exists() else None
            shutil.rmtree(place)
            shutil.copytree(folder, place)
            if own:
                metadata.write_bytes(own)

    def forget(self, topics: set[str]) -> None:
        """Make the last shutdown an unclean one, of a first broker that knew nothing of some topics."""
        (self.logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
        for path in self.logs.glob("*-checkpoint"):
            lines = [line for line in path.read_text().splitlines()[2:] if line.rsplit(" ", 2)[0] not in topics]
            path.write_text("".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)))

    def leader(self, topic: str) -> int:
        """The number of the broker that leads, -1 for none."""
        return int(AdminClient({"bootstrap.servers": self.address}).list_topics(topic, 60).topics[topic].partitions[0].leader)

    def records(self, topic: str, isolation: str) -> list[dict[str, Any]]:
        """Offsets, keys and values that a consumer gets from the start to the end."""
        # A consumer that asks for the first offset, or waits for bytes at the end, takes a second and more.
        settings = {"group.id": "g", "enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
        consumer = Consumer({"bootstrap.servers": self.address, "isolation.level": isolation, **settings})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[dict[str, Any]] = []
        while True:
            message = consumer.poll(60)
            assert message is not None, f"{topic}: nothing came after {len(found)} records"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                consumer.close()
                return found
            found.append({"offset": message.offset(), "key": message.key(), "value": message.value()})


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not until():
        assert time.monotonic() < end
        time.sleep(0.3)
