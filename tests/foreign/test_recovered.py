"""A real broker starts on what `recover` wrote, and serves every record of it."""

import shutil
import tarfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

import kolumn
from kit.broker import Cluster
from kit.corpus import HERE
from kit.elections import make
from kit.java import NEEDS_JAVA
from kit.replicas import copy, last_bytes

pytestmark = NEEDS_JAVA
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
        admin = AdminClient({"bootstrap.servers": cluster.address})
        made = admin.create_topics([NewTopic(topic, 1, 1) for topic in sorted(folders)])
        for one in made.values():
            one.result(60)
        time.sleep(1)
    for topic, folder in folders.items():
        place = cluster.logs / f"{topic}-0"
        metadata = (place / "partition.metadata").read_bytes()
        shutil.rmtree(place)
        shutil.copytree(folder, place)
        (place / "partition.metadata").write_bytes(metadata)
    cluster.forget(set(folders))
    columns = ["offset", "key", "value"]
    with cluster.running():
        for topic, folder in folders.items():
            for isolation in ("read_uncommitted", "read_committed"):
                expected = kolumn.read(folder, columns=columns, isolation_level=isolation).to_pylist()
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
