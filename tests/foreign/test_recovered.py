"""A real broker serves every record of what `recover` wrote, and a consumer reads the same rows of a tier that a broker wrote."""

import os
import random
import shutil
import tarfile
import time
from pathlib import Path

from confluent_kafka import Producer

import kolumn
from kit.cluster import LEVELS, Cluster, wait
from kit.corpus import HERE
from kit.elections import make
from kit.java import NEEDS_JAVA
from kit.replicas import copy, last_bytes

pytestmark = NEEDS_JAVA
COLUMNS = ["offset", "key", "value"]
NAMES = (
    *("transactional/txn-lz4-0", "transactional/txn-open-0", "v2-java/java-zstd-0", "upgraded/upgraded-lz4-0"),
    *("compacted/compact-zstd-0", "v1/v1-lz4-0", "v0/v0-lz4-0"),
)
CASES = Path(__file__).parents[1] / "field"
FOLDERS = [HERE / name for name in NAMES if (HERE / name).is_dir()]


def served(broker: str, root: Path, folders: dict[str, Path]) -> None:
    """Start a broker on folders, a topic each, and compare what it serves with what they have."""
    cluster = Cluster(broker, root)
    with cluster.running():
        cluster.create({topic: {} for topic in folders})
    cluster.replace(folders)
    cluster.forget(set(folders))
    with cluster.running():
        for topic, folder in folders.items():
            for isolation in LEVELS:
                expected = kolumn.read(folder, columns=COLUMNS, isolation_level=isolation).to_pylist()
                assert cluster.records(topic, isolation) == expected, (topic, isolation)
                assert expected or isolation == "read_committed"


def test_a_broker_serves_every_record(broker: str, tmp_path: Path) -> None:
    copies = [tmp_path / "b1", tmp_path / "b2"]
    for folder in FOLDERS:
        for number, disk in enumerate(copies):
            # Every tenth batch is damaged in both.
            last_bytes(copy(folder, disk), lambda batch, number=number: batch % 5 == number or batch % 10 == 7)
    done = kolumn.recover(copies, tmp_path / "out")
    assert done.partitions.num_rows == len(FOLDERS)
    assert not done.ok
    served(broker, tmp_path / "broker", {folder.name.removesuffix("-0"): tmp_path / "out" / folder.name for folder in FOLDERS})


def test_a_broker_serves_what_is_left_of_odd_logs(broker: str, tmp_path: Path) -> None:
    """Offsets that go back or span more than an index holds, mixed folders, tiers, elections with damage."""
    found: dict[str, Path] = {}
    for case in ("nonmonotonic-offsets", "overlapping-segments", "offset-overflow", "tier-unclean-leader"):
        with tarfile.open(CASES / case / "input.tar.xz") as packed:
            packed.extractall(tmp_path / case, filter="data")
        for folder in sorted((tmp_path / case).iterdir()):
            kolumn.recover(folder, tmp_path / "out" / folder.name)
            (found[f"{case}-{folder.name}"],) = (tmp_path / "out" / folder.name).iterdir()
    for seed in range(40):
        made = make(seed, tmp_path / f"seed{seed}")
        try:
            done = kolumn.recover(made.folders, tmp_path / "out" / f"{seed}")
        except kolumn.ArgumentError:
            continue
        if done.partitions["records"][0].as_py():
            found[f"seed-{seed}"] = tmp_path / "out" / f"{seed}" / "t-0"
    assert len(found) > 50
    served(broker, tmp_path / "broker", found)


# A tier that a broker of Kafka 4.3.0 wrote, with segments copied twice and a deleted one.

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


def test_rows_are_those_of_a_consumer(tool: str, tmp_path: Path) -> None:
    tier, given = tmp_path / "tier", random.Random(24)
    cluster = Cluster(tool, tmp_path / "broker", TIERED.format(tier=tier))
    local = cluster.logs / "orders-0"

    def logs() -> list[str]:
        return sorted(path.name for path in tier.glob("kafka-tiered-storage/orders-0-*/*.log"))

    def closed() -> int:
        return len(list(local.glob("*.log"))) - 1

    with cluster.running():
        settings = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "-1", "retention.bytes": "-1"}
        cluster.create({"orders": settings})
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
        cluster.change("orders", local_retention_bytes="1")
        wait(lambda: closed() == 0)
        compare(cluster, tier, local)
        size = sum(path.stat().st_size for path in tier.glob("kafka-tiered-storage/orders-0-*/*.log"))
        known = set(logs())
        cluster.change("orders", retention_bytes=str(size // 3))
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
