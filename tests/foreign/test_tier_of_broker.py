"""A tier that a broker of Kafka 4.3.0 wrote, with segments copied twice and a deleted one: the rows are those of a consumer."""

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

import kolumn
from kit.broker import Cluster
from kit.java import NEEDS_JAVA

pytestmark = NEEDS_JAVA
TIERED = """remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
remote.log.storage.manager.impl.prefix=rsm.config.
rsm.config.dir={tier}
remote.log.metadata.manager.class.name=org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.listener.name=PLAINTEXT
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.num.partitions=1
remote.log.manager.task.interval.ms=500
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=100
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""
LEVELS = ("read_uncommitted", "read_committed")
COLUMNS = ["offset", "key", "value"]


def transactions(address: str, number: int, name: str, random: random.Random) -> None:
    """Each third is aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 5, "batch.num.messages": 25})
    producer.init_transactions(60)
    for i in range(number):
        producer.begin_transaction()
        for j in range(50):
            producer.produce("orders", f"{name}-{i}-{j}-".encode() + random.randbytes(random.randrange(100, 6000)), f"k{j}", partition=0)
        producer.flush(60)
        if i % 3 == 1:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def change(address: str, **settings: str) -> None:
    entries = [ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()]
    admin = AdminClient({"bootstrap.servers": address})
    changed = admin.incremental_alter_configs([ConfigResource("topic", "orders", incremental_configs=entries)])
    for one in changed.values():
        one.result(60)


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not until():
        assert time.monotonic() < end
        time.sleep(0.3)


def test_rows_are_those_of_a_consumer(tool: str, tmp_path: Path) -> None:
    tier, given = tmp_path / "tier", random.Random(24)
    cluster = Cluster(tool, tmp_path / "broker", TIERED.format(tier=tier))
    local = cluster.logs / "orders-0"

    def logs() -> list[str]:
        return sorted(path.name for path in tier.glob("kafka-tiered-storage/orders-0-*/*.log"))

    def closed() -> int:
        return len(list(local.glob("*.log"))) - 1

    with cluster.running():
        admin = AdminClient({"bootstrap.servers": cluster.address})
        settings = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "-1", "retention.bytes": "-1"}
        admin.create_topics([NewTopic("orders", 1, 1, config=settings)])["orders"].result(60)
        transactions(cluster.address, 30, "first", given)
        wait(lambda: closed() > 2 and len(logs()) == closed())
    # A broker that has lost what it knew of the tier copies everything again.
    for path in cluster.logs.glob("__remote_log_metadata-*"):
        shutil.rmtree(path)
    cluster.forget({"__remote_log_metadata"})
    before = logs()
    with cluster.running():
        wait(lambda: len(logs()) == 2 * len(before))
        transactions(cluster.address, 12, "second", given)
        wait(lambda: len({name[:20] for name in logs()}) == closed())
        change(cluster.address, local_retention_bytes="1")
        wait(lambda: closed() == 0)
        compare(cluster, tier, local)
        size = sum(path.stat().st_size for path in tier.glob("kafka-tiered-storage/orders-0-*/*.log"))
        known = set(logs())
        change(cluster.address, retention_bytes=str(size // 3))
        wait(lambda: len(logs()) < len(known))
        time.sleep(3)
        compare(cluster, tier, local)
    assert kolumn.verify(tier / "kafka-tiered-storage").ok


def compare(cluster: Cluster, tier: Path, local: Path) -> None:
    """The rows of the tier and the broker's folder are the consumer's, from the first offset that it was given."""
    for level in LEVELS:
        expected = cluster.records("orders", level)
        found = kolumn.read([tier / "kafka-tiered-storage", local], columns=COLUMNS, isolation_level=level).to_pylist()
        assert len(expected) > 300
        found = [row for row in found if row["offset"] >= expected[0]["offset"]]
        assert found == expected, level
        assert os.listdir(tier)
