"""A real broker starts on what `recover` wrote, and serves every record of it."""

import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kolumn
from foreign.test_dump_log_segments import broker as broker
from kit.broker import Cluster
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
