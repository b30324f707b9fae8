"""What a cluster keeps for itself: `decode=\"internal\"`, and what a coordinator would know after it had loaded its topic."""

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kolumn
from kit.asked import invoked, put
from kit.command_line import run
from kit.corpus import HERE
from kit.dumped import BROKERS, differences, kept
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.outcome import raises
from kit.tiers import uuid_of

INTERNAL = HERE / "internal"
OFFSETS, STATE = INTERNAL / "__consumer_offsets-0", INTERNAL / "__transaction_state-0"
T = 1_700_000_000_000


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def commit_key(group: str, topic: str, partition: int) -> bytes:
    return struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", partition)


def commit(offset: int, metadata: str = "", time: int = T) -> bytes:
    return struct.pack(">hqi", 3, offset, 4) + text(metadata) + struct.pack(">q", time)


def classic(generation: int, members: int) -> bytes:
    assignment = struct.pack(">hi", 9, 1) + text("orders") + struct.pack(">iii", 1, 0, -1)
    member = text("m-1") + struct.pack(">h", -1) + text("client") + text("/10.0.0.1") + struct.pack(">iii", 1, 2, 0)
    member += struct.pack(">i", len(assignment)) + assignment
    head = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", generation) + text("range") + text("m-1")
    return head + struct.pack(">qi", T, members) + member * members


def rows(*sources: Path, **options: Any) -> list[dict[str, Any]]:
    return kolumn.groups(sources, **options).to_pylist()


def one(offset: int, key: bytes, value: bytes | None) -> bytes:
    return batch([Record(offset, key, value, T)])


def test_the_newest_commit_counts_and_those_of_transactions_that_are_committed(tmp_path: Path) -> None:
    a, b, c = (commit_key("g", "orders", number) for number in range(3))
    put(tmp_path / "__consumer_offsets-7", one(0, a, commit(5)), one(1, b, commit(6)), one(2, a, commit(9, "note")), one(3, b, None))
    put(tmp_path / "__consumer_offsets-8", one(0, commit_key("h", "gone", 0), commit(3)), one(1, c, commit(1)))
    put(tmp_path / "orders-0", batch([Record(i, None, b"x", T) for i in range(12)]))
    found = {(row["group"], row["topic"], row["partition"]): row for row in rows(tmp_path)}
    assert found.keys() == {("g", "orders", 0), ("g", "orders", 2), ("h", "gone", 0)}
    first = found["g", "orders", 0]
    assert (first["committedOffset"], first["logEndOffset"], first["lag"]) == (9, 12, 3)
    assert (first["metadata"], first["leaderEpoch"], first["kind"], first["commitTimestamp"].timestamp()) == ("note", 4, None, T / 1000)
    assert found["h", "gone", 0]["lag"] is None

    def part(offset: int, number: int, producer: int) -> bytes:
        record = Record(offset, commit_key("g", "orders", number), commit(100 + number), T)
        return batch([record], flags=TRANSACTIONAL, producer_id=producer, producer_epoch=0)

    entries = [one(i, commit_key("g", "orders", i), commit(i)) for i in range(3)]
    entries += [part(3, 0, 7), part(4, 1, 8), part(5, 2, 9)]
    entries += [control_batch(6, 1, producer_id=7, producer_epoch=0), control_batch(7, 0, producer_id=8, producer_epoch=0)]
    put(tmp_path / "2" / "__consumer_offsets-0", *entries)
    assert [row["committedOffset"] for row in rows(tmp_path / "2")] == [100, 1, 2]


def test_members_and_states_of_classic_groups(tmp_path: Path) -> None:
    key = struct.pack(">h", 2)
    values = {"live": classic(5, 1), "idle": classic(6, 0), "gone": classic(1, 1)}
    entries = [one(i, key + text(group), value) for i, (group, value) in enumerate([*values.items(), ("gone", None)])]
    put(tmp_path / "__consumer_offsets-0", *entries)
    idle, live = rows(tmp_path)
    assert (idle["group"], idle["state"], idle["members"], idle["topic"]) == ("idle", "Empty", [], None)
    assert (live["state"], live["kind"], live["protocol"], live["generation"]) == ("Stable", "classic", "range", 5)
    (member,) = live["members"]
    assert member == {
        "memberId": "m-1", "instanceId": None, "clientId": "client", "clientHost": "/10.0.0.1",
        "assigned": [{"topic": "orders", "partition": 0}],
    }  # fmt: skip


def test_groups_of_a_real_broker(tmp_path: Path) -> None:
    found = rows(OFFSETS, HERE / "transactional" / "txn-open-0")
    new = [row for row in found if row["kind"] == "consumer"]
    assert {(row["group"], row["state"], row["committedOffset"]) for row in new} == {
        ("new-protocol-0", "Empty", 45), ("new-protocol-1", "Empty", 45), ("new-protocol-0", "Empty", 0), ("new-protocol-1", "Empty", 0)
    }  # fmt: skip
    assert [(row["group"], row["committedOffset"], row["lag"]) for row in found if row["kind"] == "classic"] == [
        ("readers-0", 73, 849), ("readers-1", 78, 844), ("readers-2", 78, 844), ("readers-3", 78, 844)
    ]  # fmt: skip
    raises(kolumn.ArgumentError, "no __consumer_offsets in this source", rows, HERE / "transactional" / "txn-open-0")
    # Commits of format 4 name the topic's id, and so does the folder.
    copy = put(tmp_path / "txn-open-0", (HERE / "transactional" / "txn-open-0" / f"{0:020}.log").read_bytes()).parent
    assert {row["lag"] for row in rows(OFFSETS, copy) if row["topic"] == "txn-open"} == {119, 114}
    (copy / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert {row["lag"] for row in rows(OFFSETS, copy) if row["topic"] == "txn-open"} == {None}


def test_copies_are_one_log_and_damage_is_told(tmp_path: Path) -> None:
    entries = [one(i, commit_key("g", "orders", 0), commit(i)) for i in range(5)]
    put(tmp_path / "a" / "__consumer_offsets-0", *entries)
    put(tmp_path / "b" / "__consumer_offsets-0", *entries[:4], entries[4][:-1] + b"?")
    assert [row["committedOffset"] for row in rows(tmp_path / "a", tmp_path / "b")] == [4]
    raises(kolumn.CorruptBatchError, "", rows, tmp_path / "b")
    skipped = kolumn.Skipped()
    assert [row["committedOffset"] for row in rows(tmp_path / "b", errors="skip", on_damage=skipped)] == [3]
    assert skipped.stretches == 1
    done = invoked("groups", "--json", tmp_path / "b")
    assert (done.exit_code, json.loads(done.stdout)["committedOffset"]) == (1, 3)


def test_open_transactions_of_a_real_broker() -> None:
    logs = [HERE / "transactional" / name for name in ("txn-open-0", "txn-lz4-0")]
    (row,) = (one for one in kolumn.open_transactions([STATE, *logs], now="2026-11-20T19:40").to_pylist() if one["firstOffset"] is not None)
    assert (row["transactionalId"], row["producerId"], row["producerEpoch"], row["firstOffset"]) == ("txn-open-0", 6, 7, 822)
    assert (row["topic"], row["isHanging"], row["coordinatorState"], row["timeoutMs"]) == ("txn-open", False, "Ongoing", 900000)
    assert row["ageMs"] == 380654
    # The logs of the others are not in the source.
    others = {one["topic"] for one in kolumn.open_transactions([STATE, *logs]).to_pylist() if one["firstOffset"] is None}
    assert others == {"txn-zstd", "txn-librdkafka"}


def test_hanging_transactions(tmp_path: Path) -> None:
    def state(offset: int, name: str, producer: int, status: int, partitions: list[int]) -> bytes:
        body = struct.pack(">hqhib", 0, producer, 3, 60_000, status) + struct.pack(">i", 1) + text("orders")
        body += struct.pack(f">i{len(partitions)}iqq", len(partitions), *partitions, T, T - 10)
        return one(offset, struct.pack(">h", 0) + text(name), body)

    def begun(offset: int, producer: int) -> bytes:
        return batch([Record(offset, None, b"x", T)], flags=TRANSACTIONAL, producer_id=producer, producer_epoch=3)

    put(tmp_path / "orders-0", begun(0, 1), begun(1, 2), begun(2, 3))
    unknown = kolumn.open_transactions(tmp_path, now=T + 5).to_pylist()
    assert [(row["producerId"], row["isHanging"], row["ageMs"]) for row in unknown] == [(1, None, 5), (2, None, 5), (3, None, 5)]
    states = (("a", 1, 1, [0]), ("b", 2, 1, [0]), ("b", 2, 4, []), ("c", 4, 1, [1]))
    put(tmp_path / "__transaction_state-0", *(state(i, *given) for i, given in enumerate(states)))
    found = {row["producerId"]: row for row in kolumn.open_transactions(tmp_path, now=T + 5).to_pylist()}
    expected = {1: (False, "Ongoing"), 2: (True, "CompleteCommit"), 3: (True, None), 4: (False, "Ongoing")}
    assert {producer: (row["isHanging"], row["coordinatorState"]) for producer, row in found.items()} == expected
    assert (found[4]["firstOffset"], found[4]["partition"], found[4]["ageMs"]) == (None, 1, 15)
    done = invoked("transactions", "--now", str(T + 5), tmp_path)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (
        0,
        "4 open transactions, the oldest 15 ms old; 2 hang: no coordinator will end them",
    )
    assert [line.split()[2] for line in done.stdout.splitlines()[2:]] == ["producerId", "1", "2", "3", "4"]


def test_no_open_transactions(tmp_path: Path) -> None:
    put(tmp_path / "orders-0", batch([Record(0, None, b"x", T)]))
    done = invoked("transactions", tmp_path)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "no open transactions\n", "")
    (tmp_path / "a.txt").write_text("hello\n")
    done = invoked("transactions", tmp_path / "a.txt")
    assert (done.exit_code, done.stdout) == (1, "no open transactions in what can be read\n")
    assert done.stderr == f"{tmp_path / 'a.txt'}: not a Kafka log segment: text (6 bytes)\n"
    assert invoked("transactions", "--json", tmp_path / "orders-0").stderr == "no open transactions\n"
    # A segment without the name of its topic is looked at too.
    (tmp_path / "x.log").write_bytes(batch([Record(0, None, b"x", T)], flags=TRANSACTIONAL, producer_id=7, producer_epoch=0))
    assert [row["producerId"] for row in kolumn.open_transactions(tmp_path / "x.log").to_pylist()] == [7]


def test_groups_say_why_a_lag_is_unknown(tmp_path: Path) -> None:
    """The group that is most behind comes first, with its total; what is not known comes last, with the reason."""
    commits = (("a", "orders", 0, 9), ("b", "orders", 0, 2), ("b", "orders", 1, 5), ("c", "ledger.gz", 3, 1))
    put(tmp_path / "__consumer_offsets-0", *(one(i, commit_key(*of), commit(at)) for i, (*of, at) in enumerate(commits)))
    put(tmp_path / "orders-0", batch([Record(i, None, b"x", T) for i in range(12)]))
    lines = invoked("groups", tmp_path).stdout.splitlines()
    assert lines[:2] == [
        "3 groups, 4 partitions with committed offsets: lag 13 in all",
        "lag unknown: no log of ledger.gz, orders-1 in this source; name the other disks too",
    ]
    start = lines.index("Groups")
    assert [line.split() for line in lines[start + 1 : start + 5]] == [
        ["group", "kind", "state", "partitions", "lag", "lagUnknown"], ["b", "2", "10", "1"], ["a", "1", "3"], ["c", "1", "1"],
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[lines.index("Partitions") + 2 :]] == ["b", "a", "b", "c"]
    done = invoked("groups", "--json", tmp_path)
    assert ("lag unknown: no log of ledger.gz" in done.stderr, len(done.stdout.splitlines())) == (True, 4)


@pytest.mark.parametrize("place", ["orders-0", "__consumer_offsets-0", f"orders-{uuid_of('orders')}/0"])
def test_manifests_that_are_none_hide_nothing(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    entries = [one(i, commit_key("g", "orders", 0), commit(i)) for i in range(3)]
    put(tmp_path / "__consumer_offsets-0", *entries)
    put(tmp_path / "orders-0", *(batch([Record(i, None, b"x", T)]) for i in range(7)))
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / f"{99:020d}-{uuid_of('bad')}.rsm-manifest").write_text("{")
    for errors in ("raise", "skip"):
        (row,) = rows(tmp_path, errors=errors)
        assert (row["committedOffset"], row["logEndOffset"]) == (2, 7)
    assert ("a manifest of a tier" in caplog.text) == ("/" in place)
    assert kolumn.open_transactions(tmp_path, errors="skip").num_rows == 0


def types(table: pa.Table, column: str = "value") -> Counter[Any]:
    return Counter(pc.struct_field(table[column].combine_chunks(), "type").to_pylist())


def test_offsets_of_groups() -> None:
    table = kolumn.read(OFFSETS, decode="internal")
    assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "keyValid", "valueValid"]
    commits = table.filter(pc.equal(pc.struct_field(table["value"], "type"), "OffsetCommit"))
    groups = Counter(pc.struct_field(commits["key"], ["OffsetCommit", "group"]).to_pylist())
    assert set(groups) == {"readers-0", "readers-1", "readers-2", "readers-3", "new-protocol-0", "new-protocol-1"}
    newest = commits.slice(commits.num_rows - 1).to_pylist()[0]["value"]["OffsetCommit"]
    assert newest.keys() == {"offset", "leaderEpoch", "metadata", "commitTimestamp", "expireTimestamp", "topicId"}
    assert pc.all(pc.or_(table["valueValid"], pc.is_null(table["value"]))).as_py()


def test_metadata_of_a_cluster_and_its_snapshots() -> None:
    log = INTERNAL / "__cluster_metadata-0"
    plain = kolumn.read(log, decode="internal")
    control = kolumn.read(log, decode="internal", include_control=True)
    assert types(control) - types(plain) == {"LeaderChangeMessage": 5, "KRaftVersionRecord": 1, "VotersRecord": 1}
    assert types(plain)["PartitionChangeRecord"] == 648
    assert "LeaderChangeMessage" not in {one.name for one in plain.schema.field("value").type}
    topics = plain.filter(pc.equal(pc.struct_field(plain["value"], "type"), "TopicRecord"))
    assert "meta-0-4" in pc.struct_field(topics["value"], ["TopicRecord", "name"]).to_pylist()
    snapshots = sorted(path.name for path in log.glob("*.checkpoint"))
    (remark,) = kolumn.verify(log).remarks.to_pylist()
    assert (remark["kind"], remark["remark"].split()[0]) == ("snapshots", str(len(snapshots)))
    assert snapshots[-1] in remark["evidence"]
    table = kolumn.read(log, decode="internal", include_snapshots=True, include_control=True, columns=["segment", "key", "value"])
    read = list(dict.fromkeys(name.rpartition("/")[2] for name in table["segment"].to_pylist()))
    assert read == [*snapshots, "00000000000000000000.log"]
    assert types(table, "key")["SNAPSHOT_FOOTER"] == len(snapshots)
    report = kolumn.verify(log, include_snapshots=True)
    assert (report.remarks.num_rows, report.segments.num_rows, report.ok) == (0, len(snapshots) + 1, True)


def test_files_that_no_folder_names_and_topics_that_share_one_type(tmp_path: Any) -> None:
    assert types(kolumn.read(INTERNAL / "bootstrap.checkpoint", decode="internal")) == {"FeatureLevelRecord": 6}
    other = kolumn.read(INTERNAL / "old-broker__consumer_offsets-0", decode="internal", topic="__consumer_offsets")
    assert types(other) == {"OffsetCommit": 36, "GroupMetadata": 6}
    table = kolumn.read([OFFSETS, STATE], decode="internal")
    assert types(table)["TransactionLog"] == 655
    assert types(table)["OffsetCommit"] == 100
    pq.write_table(table, tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").equals(table)


@pytest.mark.parametrize("options", [{"threads": 2, "chunk_bytes": 2000}, {"binary": "view"}, {"errors": "skip"}])
def test_every_way_to_read(options: dict[str, Any]) -> None:
    whole = kolumn.read(STATE, decode="internal", columns=["valueRaw", "value", "keyRaw"])
    assert pa.Table.from_batches(kolumn.scan(STATE, decode="internal", **options)) == kolumn.read(STATE, decode="internal")
    raw = kolumn.read(STATE, columns=["value", "key"])
    assert (whole["valueRaw"], whole["keyRaw"]) == (raw["value"], raw["key"])


def test_messages_in_cat_and_parquet(tmp_path: Any) -> None:
    done = run("cat", "--json", "--decode", "internal", OFFSETS)
    assert done.returncode == 0, done.stderr
    first, *rest = (json.loads(line) for line in done.stdout.splitlines())
    assert first["key"] == {"type": "GroupMetadata", "version": 2, "data": {"group": "readers-0"}}
    assert (first["value"]["data"]["members"], len(rest), done.stderr) == ([], 129, "")
    done = run("to-parquet", "--decode", "internal", OFFSETS, tmp_path / "lake")
    assert done.returncode == 0, done.stderr
    found = pa.concat_tables(pq.ParquetFile(path).read() for path in sorted((tmp_path / "lake").rglob("*.parquet")))
    expected = kolumn.read(OFFSETS, decode="internal")
    for name in ("key", "value"):
        assert found[name].to_pylist() == expected[name].to_pylist()


@pytest.mark.parametrize("version", sorted(path.name for path in BROKERS.iterdir()))
def test_messages_of_other_brokers_are_those_of_kafkas_decoders(version: str) -> None:
    """Compared field by field with what DumpLogSegments of Kafka 4.3.0 prints of the same segments."""
    compared = 0
    for log in sorted((BROKERS / version).glob("*/*.log")):
        lines = kept(log)
        rows = kolumn.read(log, decode="internal", include_control=True).to_pylist()
        assert {row["offset"] for row in rows} == set(lines)
        for row in rows:
            assert list(differences(row, *lines[row["offset"]])) == [], (log, row["offset"])
            compared += 1
    assert compared > 20
