"""Real brokers: what an unclean election took, what became of a key, and logs without erased records, which brokers serve and clean."""

import random
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

import kolumn
from kit.cluster import LEVELS, Cluster, wait
from kit.corpus import HERE
from kit.java import NEEDS_JAVA

pytestmark = NEEDS_JAVA
INTERNAL = """transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
offsets.topic.num.partitions=1
"""
ELECTIONS = """broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
unclean.leader.election.enable=true
"""
CLEANER = """log.cleaner.enable=true
log.cleaner.backoff.ms=300
log.cleaner.dedupe.buffer.size=4194304
"""
Pair = tuple[str, str | None]
Row = dict[str, Any]


def send(producer: Producer, topic: str, records: Iterable[Pair]) -> list[int]:
    """Produce keys and values, and return the offsets that were acknowledged."""
    offsets: list[int] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for key, value in records:
        producer.produce(topic, value, key, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    return offsets


def producer(cluster: Cluster, name: str = "", codec: str = "none") -> Producer:
    """One of transactions if it has a name."""
    settings = {"transactional.id": name, "transaction.timeout.ms": 600_000} if name else {"enable.idempotence": True}
    new = Producer({"bootstrap.servers": cluster.address, "batch.num.messages": 10, "compression.type": codec, "log_level": 2, **settings})
    if name:
        new.init_transactions(60)
    return new


def end(producer: Producer, commit: bool) -> None:
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


# An unclean election.

COMMON, LOST, NEW = ([(f"{name}-{i}", f"value {i}") for i in range(n)] for name, n in (("common", 100), ("lost", 37), ("new", 55)))


@dataclass
class Elected:
    """Folders of the leader that died and of the follower that was elected though it lacked records, the offsets of each, and first
    offsets of the follower's transactions that Kafka's own tool calls hanging."""

    a: Path
    b: Path
    common: dict[str, list[int]] = field(default_factory=dict)
    died: dict[str, list[int]] = field(default_factory=dict)
    new: dict[str, list[int]] = field(default_factory=dict)
    hanging: set[int] = field(default_factory=set)


@pytest.fixture(scope="module")
def elected(tool: str, tmp_path_factory: pytest.TempPathFactory) -> Elected:
    """Transactions of `lost marker` are complete, as the coordinator knows, but their marker was in the dead leader's log alone."""
    cluster = Cluster(tool, tmp_path_factory.mktemp("elected") / "cluster", INTERNAL + ELECTIONS, brokers=3)
    coordinator, a, b = cluster.brokers
    found = Elected(a.logs, b.logs)
    with coordinator.running():
        with a.running() as leader:
            with b.running():
                cluster.create({"plain": {}, "transactions": {}}, [2, 3])
                cluster.create({"__transaction_state": {"cleanup.policy": "compact"}}, [1, 3])
                plain, marked = producer(cluster), {name: producer(cluster, name) for name in ("complete", "lost marker", "open")}
                found.common["plain"] = send(plain, "plain", COMMON)
                for name, one in marked.items():
                    one.begin_transaction()
                    found.common[name] = send(one, "transactions", COMMON[:15])
                end(marked["complete"], True)
            end(marked["lost marker"], True)
            # A coordinator says that a transaction is committed before it writes the marker.
            wait(lambda: len(cluster.records("transactions", "read_committed")) == 30)
            found.died["plain"] = send(plain, "plain", LOST)
            marked["complete"].begin_transaction()
            found.died["transactions"] = send(marked["complete"], "transactions", LOST)
            end(marked["complete"], True)
            leader.kill()
        with b.running():
            wait(lambda: cluster.leader("plain") == cluster.leader("transactions") == 3)
            found.new["plain"] = send(producer(cluster), "plain", NEW)
            found.new["transactions"] = send(producer(cluster), "transactions", NEW[:10])
            # What this is about: consumers of committed records wait for ever.
            assert len(cluster.records("transactions", "read_committed")) == 15
            asked = ["--bootstrap-server", cluster.address, "find-hanging", "--broker", "3", "--max-transaction-timeout", "0"]
            listed = subprocess.check_output(b.java("org.apache.kafka.tools.TransactionsCommand", *asked), text=True)
            found.hanging = {int(line.split("\t")[5]) for line in listed.splitlines()[1:]}
    return found


@pytest.mark.parametrize("topic", ["plain", "transactions"])
def test_records_that_died_with_a_leader(elected: Elected, topic: str) -> None:
    folders = [folder / f"{topic}-0" for folder in (elected.a, elected.b)]
    found = kolumn.diff(*folders)
    assert not found.equal
    for side, folder, own in (("A", folders[0], elected.died), ("B", folders[1], elected.new)):
        rows = [row for row in found.differences.to_pylist() if row["kind"] in (f"only in {side}", "content differs")]
        offsets = {offset for row in rows for offset in range(row["firstOffset"], row["lastOffset"] + 1)}
        # Markers are among them.
        assert offsets & set(kolumn.read(folder)["offset"].to_pylist()) == set(own[topic])


def test_a_transaction_whose_marker_died(elected: Elected) -> None:
    found = kolumn.audit(elected.b)
    assert not found.ok
    rows = [row for row in found.findings.to_pylist() if row["topic"] == "transactions"]
    missing = {row["firstOffset"] for row in rows if row["kind"] == "marker-missing"}
    assert missing == elected.hanging == {elected.common["lost marker"][0]}


# Records that are erased, and keys of a compacted topic.

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD = {name.partition("/")[0]: HERE / f"{name}-0" for name in ("v0/v0-lz4", "v1/v1-lz4", "upgraded/upgraded-gzip")}
USERS = [f"user-{number}" for number in range(200)]
ERASED = ["user-7", "user-130"]
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01"}


@dataclass
class Written:
    """A cluster of one broker that has stopped, a copy of its folders, producers that it knows of each codec, and what consumers got of
    each topic, by the isolation level."""

    cluster: Cluster
    logs: Path
    producers: dict[str, Producer]
    records: dict[str, dict[str, list[Row]]]


def records_of(random: random.Random, number: int) -> list[Pair]:
    """Each tenth record is a tombstone. What is to be erased is known by its value."""
    keys = random.choices(USERS, k=number)
    return [(key, None if random.random() < 0.1 else f"secret of {key}: {random.randbytes(8).hex()}" + "." * 50) for key in keys]


def write(cluster: Cluster, codec: str, random: random.Random) -> Producer:
    """Transactions, of which each third is aborted, and other records; one whole transaction and the last batches of both producers
    are to be erased. Returned is the producer of the others."""
    marked, plain = producer(cluster, codec, codec), producer(cluster, codec=codec)
    for number in range(12):
        marked.begin_transaction()
        send(marked, codec, [(ERASED[0], f"secret of {ERASED[0]}")] if number in (6, 11) else records_of(random, 60))
        end(marked, number % 3 != 1)
        send(plain, codec, records_of(random, 30))
    send(plain, codec, [(ERASED[1], f"secret of {ERASED[1]}")])
    return plain


def write_compacted(cluster: Cluster, random: random.Random) -> None:
    """Segments of transactions, of which each third is aborted, that the cleaner has been at."""
    marked = producer(cluster, "state")
    for number in range(9):
        marked.begin_transaction()
        send(marked, "state", records_of(random, 80))
        end(marked, number % 3 != 1)
        time.sleep(0.4)
    wait(lambda: cleaned(cluster, "state") > 600)


def cleaned(cluster: Cluster, topic: str) -> int:
    """The offset up to which a topic is compacted."""
    path = cluster.logs / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[0] == topic), 0)


@pytest.fixture(scope="module")
def written(tool: str, tmp_path_factory: pytest.TempPathFactory) -> Written:
    home, given = tmp_path_factory.mktemp("written"), random.Random(24)
    cluster = Cluster(tool, home / "cluster", INTERNAL + CLEANER)
    with cluster.running():
        cluster.create({topic: {} for topic in (*CODECS, *OLD)} | {"state": COMPACTED})
        producers = {codec: write(cluster, codec, given) for codec in CODECS}
        write_compacted(cluster, given)
        records = {topic: {level: cluster.records(topic, level) for level in LEVELS} for topic in (*CODECS, "state")}
    return Written(cluster, shutil.copytree(cluster.logs, home / "logs"), producers, records)


def test_the_latest_records_of_a_compacted_topic(written: Written) -> None:
    """They are what a consumer keeps that applies the topic record by record."""
    kept: dict[bytes, Row] = {}
    for row in written.records["state"]["read_committed"]:
        kept[row["key"]] = row
    expected = sorted((row for row in kept.values() if row["value"] is not None), key=lambda row: row["offset"])
    found = kolumn.latest(written.logs / "state-0").select(["offset", "key", "value"]).to_pylist()
    assert sorted(found, key=lambda row: row["offset"]) == expected
    assert 20 < len(expected) < len(written.records["state"]["read_committed"])


@pytest.mark.parametrize("topic", ["state", "zstd"])
def test_what_became_of_a_key(written: Written, topic: str) -> None:
    committed, every = ([row for row in written.records[topic][level] if row["key"] == b"user-7"] for level in LEVELS[::-1])
    found = kolumn.history(written.logs / f"{topic}-0", key="user-7").to_pylist()
    assert [(row["offset"], row["tombstone"]) for row in found] == [(row["offset"], row["value"] is None) for row in every]
    assert [row["offset"] for row in found if row["transaction"] != "aborted"] == [row["offset"] for row in committed]


@dataclass
class Kept:
    """Folders without erased records, and the records of each topic that are left."""

    folders: dict[str, Path]
    records: dict[str, dict[str, list[Row]]]
    ends: dict[str, int]

    def are_served(self, cluster: Cluster) -> None:
        """They are, and the next record gets the next offset of the log as it was."""
        new = producer(cluster)
        for topic, records in self.records.items():
            for level in LEVELS:
                assert cluster.records(topic, level) == records[level], (topic, level)
            assert send(new, topic, [("last", "")]) == [self.ends[topic]]


@pytest.fixture(scope="module")
def kept(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Erased are 2 of 200 keys of each codec's topic; of logs in formats 0 to 2 each hundredth key, and that of a last record."""
    found, out = Kept({}, {}, {}), tmp_path_factory.mktemp("kept")
    logs = {codec: written.logs / f"{codec}-0" for codec in CODECS} | OLD
    old = {topic: kolumn.read(folder, columns=["offset", "key", "value"]).to_pylist() for topic, folder in OLD.items()}
    known = {row["key"] for rows in old.values() for row in rows} - {None}
    keys = {*(key.encode() for key in ERASED), *sorted(known)[::100], old["v1"][-1]["key"]}
    assert kolumn.erase(list(logs.values()), out / "erased", keys=keys, verify=True).ok
    for topic, folder in logs.items():
        found.folders[topic] = out / "erased" / folder.name
        found.ends[topic] = kolumn.batches(folder)["lastOffset"][-1].as_py() + 1
        levels = written.records.get(topic) or dict.fromkeys(LEVELS, old[topic])
        found.records[topic] = {level: [row for row in rows if row["key"] not in keys] for level, rows in levels.items()}
        assert len(found.records[topic][LEVELS[0]]) < len(levels[LEVELS[0]])
    return found


def test_a_new_broker_serves_and_cleans_what_was_not_erased(written: Written, kept: Kept) -> None:
    """After a crash: the broker reads all batches, and learns of producers, which go on, and of aborted transactions."""
    cluster = written.cluster
    cluster.replace(kept.folders)
    cluster.forget(set(kept.folders))
    with cluster.running():
        kept.are_served(cluster)
        for codec in CODECS:
            cluster.change(codec, **{name.replace(".", "_"): value for name, value in COMPACTED.items()})
        # By the second at the latest a segment begins, so that what was there before is cleaned.
        for _ in range(2):
            time.sleep(0.4)
            ends = {codec: send(written.producers[codec], codec, [("last", "")])[0] for codec in CODECS}
        for codec in CODECS:
            wait(lambda codec=codec: cleaned(cluster, codec) >= ends[codec] - 1)
            for level in LEVELS:
                latest = {row["key"]: row for row in kept.records[codec]["read_committed"]}
                found = [row for row in cluster.records(codec, level) if row["key"] != b"last"]
                assert found == sorted(latest.values(), key=lambda row: row["offset"]), (codec, level)


def test_an_old_broker_serves_what_was_not_erased(old_broker: str, kept: Kept, tmp_path: Path) -> None:
    """After a clean shutdown: the broker believes indexes and snapshots."""
    cluster = Cluster(old_broker, tmp_path / "cluster", INTERNAL, zookeeper=True)
    with cluster.running():
        cluster.create({topic: {} for topic in kept.folders})
    cluster.replace(kept.folders)
    with cluster.running():
        kept.are_served(cluster)
