"""`decode="internal"`: what a cluster keeps for itself comes as structs, in every way to read it."""

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kolumn
from kit.command_line import run
from kit.corpus import HERE
from kit.dumped import BROKERS, differences, kept

INTERNAL = HERE / "internal"


def types(table: pa.Table, column: str = "value") -> Counter[Any]:
    return Counter(pc.struct_field(table[column].combine_chunks(), "type").to_pylist())


def test_offsets_of_groups() -> None:
    table = kolumn.read(INTERNAL / "__consumer_offsets-0", decode="internal")
    assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "keyValid", "valueValid"]
    commits = table.filter(pc.equal(pc.struct_field(table["value"], "type"), "OffsetCommit"))
    groups = Counter(pc.struct_field(commits["key"], ["OffsetCommit", "group"]).to_pylist())
    assert set(groups) == {"readers-0", "readers-1", "readers-2", "readers-3", "new-protocol-0", "new-protocol-1"}
    newest = commits.slice(commits.num_rows - 1).to_pylist()[0]["value"]["OffsetCommit"]
    assert newest.keys() == {"offset", "leaderEpoch", "metadata", "commitTimestamp", "expireTimestamp", "topicId"}
    assert pc.all(pc.or_(table["valueValid"], pc.is_null(table["value"]))).as_py()


def test_metadata_of_a_cluster() -> None:
    log = INTERNAL / "__cluster_metadata-0"
    plain = kolumn.read(log, decode="internal")
    control = kolumn.read(log, decode="internal", include_control=True)
    assert types(control) - types(plain) == {"LeaderChangeMessage": 5, "KRaftVersionRecord": 1, "VotersRecord": 1}
    assert types(plain)["PartitionChangeRecord"] == 648
    assert "LeaderChangeMessage" not in {one.name for one in plain.schema.field("value").type}
    topics = plain.filter(pc.equal(pc.struct_field(plain["value"], "type"), "TopicRecord"))
    assert "meta-0-4" in pc.struct_field(topics["value"], ["TopicRecord", "name"]).to_pylist()


def test_snapshots_are_named_and_read() -> None:
    log = INTERNAL / "__cluster_metadata-0"
    snapshots = sorted(path.name for path in log.glob("*.checkpoint"))
    (remark,) = kolumn.verify(log).remarks.to_pylist()
    assert (remark["kind"], remark["remark"].split()[0]) == ("snapshots", str(len(snapshots)))
    assert snapshots[-1] in remark["evidence"]
    table = kolumn.read(log, decode="internal", include_snapshots=True, include_control=True, columns=["segment", "key", "value"])
    read = list(dict.fromkeys(name.rpartition("/")[2] for name in table["segment"].to_pylist()))
    assert read == [*snapshots, "00000000000000000000.log"]
    assert types(table, "key")["SNAPSHOT_FOOTER"] == len(snapshots)
    report = kolumn.verify(log, include_snapshots=True)
    assert (report.remarks.num_rows, report.segments.num_rows) == (0, len(snapshots) + 1)
    assert report.ok


def test_a_file_that_no_folder_names() -> None:
    table = kolumn.read(INTERNAL / "bootstrap.checkpoint", decode="internal")
    assert types(table) == {"FeatureLevelRecord": 6}
    other = kolumn.read(INTERNAL / "old-broker__consumer_offsets-0", decode="internal", topic="__consumer_offsets")
    assert types(other) == {"OffsetCommit": 36, "GroupMetadata": 6}


def test_several_topics_share_one_type(tmp_path: Any) -> None:
    table = kolumn.read([INTERNAL / "__consumer_offsets-0", INTERNAL / "__transaction_state-0"], decode="internal")
    assert types(table)["TransactionLog"] == 655
    assert types(table)["OffsetCommit"] == 100
    pq.write_table(table, tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").equals(table)


@pytest.mark.parametrize("options", [{"threads": 2, "chunk_bytes": 2000}, {"binary": "view"}, {"errors": "skip"}])
def test_every_way_to_read(options: dict[str, Any]) -> None:
    source = INTERNAL / "__transaction_state-0"
    assert pa.Table.from_batches(kolumn.scan(source, decode="internal", **options)) == kolumn.read(source, decode="internal")


def test_payloads_beside_messages() -> None:
    table = kolumn.read(INTERNAL / "__transaction_state-0", decode="internal", columns=["valueRaw", "value", "keyRaw"])
    raw = kolumn.read(INTERNAL / "__transaction_state-0", columns=["value", "key"])
    assert table["valueRaw"].equals(raw["value"])
    assert table["keyRaw"].equals(raw["key"])


def test_cat_prints_messages(tmp_path: Any) -> None:
    done = run("cat", "--json", "--decode", "internal", INTERNAL / "__consumer_offsets-0")
    assert done.returncode == 0, done.stderr
    first, *rest = (json.loads(line) for line in done.stdout.splitlines())
    assert first["key"] == {"type": "GroupMetadata", "version": 2, "data": {"group": "readers-0"}}
    assert first["value"]["data"]["members"] == []
    assert len(rest) == 129
    assert done.stderr == ""


def test_messages_in_parquet(tmp_path: Any) -> None:
    source = INTERNAL / "__consumer_offsets-0"
    done = run("to-parquet", "--decode", "internal", source, tmp_path / "lake")
    assert done.returncode == 0, done.stderr
    found = pa.concat_tables(pq.ParquetFile(path).read() for path in sorted((tmp_path / "lake").rglob("*.parquet")))
    expected = kolumn.read(source, decode="internal")
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
