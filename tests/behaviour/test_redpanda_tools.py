"""What do tools make of Redpanda's segments: what is left out is told, and all else is as in the same log of Kafka?"""

import logging
from contextlib import nullcontext
from pathlib import Path

import pytest

import kolumn
from kit.asked import invoked, offsets, put
from kit.corpus import HERE as CORPUS
from kit.encoder import TRANSACTIONAL, Record, batch
from kit.paths import GENERAL, without
from kit.redpanda import ARCHIVAL, CONFIGURATION, TX_FENCE, mixed, on_node, own_batch, put_on_node, swapped
from kolumn.core.paths import STREAMED
from kolumn.decode import other_types
from kolumn.readers.schemas import topic_schemas
from kolumn.tools.report.gather import gather
from kolumn.tools.statistics import collect, overview

CLOUD, UNKNOWN = 36, 41


def log(batches: int, each: int = 5) -> bytes:
    """A log of Kafka."""
    return b"".join(batch([Record(i, b"k", b"v%d" % i, i) for i in range(at, at + each)]) for at in range(0, batches * each, each))


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_types, "_told", set())


def remarks(folder: Path) -> list[tuple[str, int, int, int]]:
    """Kind, position and offsets of what `verify` remarks."""
    rows = kolumn.verify(folder, format="redpanda").remarks.to_pylist()
    return [(row["kind"], row["position"], row["offset"], row["lastOffset"]) for row in rows]


@pytest.mark.parametrize("off", [(), (GENERAL,)])
def test_batches_without_records_are_counted_by_type(tmp_path: Path, off: tuple[str, ...]) -> None:
    own = {0: (CONFIGURATION,), 1: (TX_FENCE, ARCHIVAL), 3: (CONFIGURATION, CLOUD), 4: (UNKNOWN,), 5: (UNKNOWN, -56)}
    segment = put(tmp_path / "t-0", mixed(log(6), own).data)
    with without(*off) if off else nullcontext():
        report = kolumn.verify(segment, format="redpanda")
    assert report.ok
    assert report.batches == 6 + 8
    found: dict[str, list[tuple[int, int, str]]] = {row["kind"]: [] for row in report.remarks.to_pylist()}
    for row in report.remarks.to_pylist():
        found[row["kind"]].append((row["offset"], row["lastOffset"], row["remark"].partition(",")[0]))
        assert segment.read_bytes()[row["position"] + 8 :][:8] == row["offset"].to_bytes(8, "little")
    assert found == {
        "own-batches": [
            (0, 18, "2 batches of type 2 (raft_configuration)"),
            (6, 6, "1 batch of type 10 (tx_fence)"),
            (7, 7, "1 batch of type 19 (archival_metadata)"),
        ],
        "records-elsewhere": [(19, 19, "1 batch of type 36 (dl_placeholder)")],
        "unknown-batch-type": [(32, 32, "1 batch of the unknown type -56"), (25, 31, "2 batches of the unknown type 41")],
    }


def test_a_log_of_records_alone_has_no_remarks(tmp_path: Path) -> None:
    assert remarks(put(tmp_path / "t-0", mixed(log(3), {}).data)) == []


def test_a_read_tells_of_records_that_are_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = {0: (CONFIGURATION,), 1: (CLOUD,), 2: (UNKNOWN, TX_FENCE, CLOUD)}
    segment = put(tmp_path / "t-0", mixed(log(3), own).data)
    with caplog.at_level(logging.WARNING, "kolumn"):
        for _ in range(2):
            assert kolumn.read(segment, format="redpanda").num_rows == 15
    elsewhere, unknown = caplog.messages
    assert f"{segment}: position" in elsewhere
    assert "type 36 (dl_placeholder) from raw offset 6 on are left out: the records are in objects of a cloud topic" in elsewhere
    assert "the unknown type 41 from raw offset 12 on are left out: Kolumn knows the types 1 to 38" in unknown


def test_a_type_that_is_not_known_is_never_decoded(tmp_path: Path) -> None:
    entries = [own_batch(at, kind) for at, kind in enumerate((0, 7, 29, CLOUD, 39, 127, -128, -1))]
    segment = put(tmp_path / "t-0", *entries)
    assert kolumn.read(segment, format="redpanda", include_control=True).num_rows == 0
    types = kolumn.batches(segment, format="redpanda")["batchType"].to_pylist()
    assert types == [0, 7, 29, 36, 39, 127, -128, -1]


def test_the_largest_timestamp_is_compared_with_records_of_clients(tmp_path: Path) -> None:
    low = batch([Record(0, b"", b"", 5000)], max_timestamp=7)
    late = kolumn.verify(put(tmp_path / "t-0", mixed(low, {}).data), format="redpanda").remarks
    assert late["kind"].to_pylist() == ["max-timestamp"]


OFFSETS, STATES, OPEN = "__consumer_offsets-0", "__transaction_state-0", "txn-open-0"
LATER = "2026-12-01T00:00"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of a broker of Kafka with its internal topics, and the same logs as Redpanda stores them."""
    kafka, redpanda = tmp_path_factory.mktemp("kafka"), tmp_path_factory.mktemp("redpanda")
    for name, group in ((OFFSETS, "internal"), (STATES, "internal"), (OPEN, "transactional")):
        for path in sorted((CORPUS / group / name).glob("*.log")):
            put(kafka / name, path.read_bytes(), base=int(path.stem))
            put_on_node(redpanda, name, swapped(path.read_bytes()), base=int(path.stem))
    return kafka, redpanda


def test_tools_find_the_format_by_themselves(brokers: tuple[Path, Path]) -> None:
    kafka, redpanda = brokers
    assert kolumn.groups(redpanda).equals(kolumn.groups(kafka))
    assert kolumn.groups(redpanda).num_rows > 5
    ours, theirs = (kolumn.open_transactions(folder, now=LATER) for folder in (redpanda, kafka))
    assert ours.equals(theirs)
    assert ours.num_rows > 2
    ours, theirs = (kolumn.audit(folder, now=LATER).partitions for folder in (redpanda, kafka))
    assert ours.equals(theirs)
    # Kafka's segments have leader epochs, and Redpanda's names have terms.
    node = on_node(redpanda, OPEN)
    found = kolumn.diff(kafka / OPEN, node)
    assert found.equal
    assert not found.identical
    assert kolumn.diff(node, node).identical


def test_the_end_of_a_group_is_that_of_consumers(brokers: tuple[Path, Path], tmp_path: Path) -> None:
    kafka, _ = brokers
    offsets_of_groups = b"".join(path.read_bytes() for path in sorted((kafka / OFFSETS).glob("*.log")))
    put_on_node(tmp_path, OFFSETS, swapped(offsets_of_groups))
    data = b"".join(path.read_bytes() for path in sorted((kafka / OPEN).glob("*.log")))
    put_on_node(tmp_path, OPEN, mixed(data, {0: (CONFIGURATION,), 20: (ARCHIVAL, TX_FENCE)}).data)
    expected, found = (
        [(row["committedOffset"], row["logEndOffset"]) for row in kolumn.groups(folder).to_pylist() if row["topic"] == "txn-open"]
        for folder in (kafka, tmp_path)
    )
    assert found == [(committed, end + 1) for committed, end in expected]
    assert found


def test_own_batches_are_no_gaps_of_an_audit(tmp_path: Path) -> None:
    own = {1: (TX_FENCE, ARCHIVAL), 3: (CONFIGURATION, CLOUD), 4: (UNKNOWN,)}
    put_on_node(tmp_path, "t-0", mixed(log(6), own).data)
    audit = kolumn.audit(tmp_path)
    assert audit.ok
    rows = [(row["reason"], row["offsets"]) for row in audit.offsets.to_pylist()]
    assert rows == [("marker", 5)]
    assert "batches of Redpanda's own" in audit.offsets["evidence"][0].as_py()


def test_an_open_transaction_begins_at_an_offset_of_consumers(tmp_path: Path) -> None:
    data = [batch([Record(at, b"k", b"v", 7 + at)], flags=TRANSACTIONAL, producer_id=at) for at in range(3)]
    put_on_node(tmp_path, "t-0", mixed(b"".join(data), {0: (CONFIGURATION,), 2: (ARCHIVAL,)}).data)
    rows = kolumn.open_transactions(tmp_path, now=LATER).select(["producerId", "firstOffset"]).to_pylist()
    assert [(row["producerId"], row["firstOffset"]) for row in rows] == [(0, 0), (1, 1), (2, 2)]


def test_the_schemas_of_a_node_are_read(tmp_path: Path) -> None:
    key = b'{"keytype":"SCHEMA","subject":"s-value","version":1,"magic":1,"seq":0,"node":1}'
    value = b'{"subject":"s-value","version":1,"id":3,"schema":"\\"string\\"","deleted":false}'
    path = put_on_node(tmp_path, "_schemas-0", mixed(batch([Record(0, key, value)]), {0: (CONFIGURATION,)}).data)
    assert [(own.subject, own.schema.id) for own in topic_schemas([str(path.parent)]).registered()] == [("s-value", 3)]


def test_the_parts_of_a_space_are_its_bytes(tmp_path: Path) -> None:
    data = log(5)
    kafka, redpanda = put(tmp_path / "k-0", data), put(tmp_path / "t-0", mixed(data, {}).data)
    theirs, ours = kolumn.space(kafka)[0], kolumn.space(redpanda, source_format="redpanda")[0]
    assert ours.parts - theirs.parts == {"crc": 4 * 5}
    assert sum(ours.parts.values()) == redpanda.stat().st_size


def test_sizes_in_other_formats_are_those_of_a_conversion(tmp_path: Path) -> None:
    segment = put(tmp_path / "t-0", mixed(log(6), {0: (CONFIGURATION,), 3: (TX_FENCE, CLOUD)}).data)
    (size,) = (one for one in kolumn.space(segment, source_format="redpanda") if (one.format, one.magic) == ("kafka", 2))
    done = kolumn.convert(segment, tmp_path / "k.log", source_format="redpanda")
    assert (size.records, size.bytes, size.lost) == (30, (tmp_path / "k.log").stat().st_size, done.lost)


def test_the_leader_epoch_of_batches_is_the_term(tmp_path: Path) -> None:
    put_on_node(tmp_path, "t-0", swapped(log(2)), term=7)
    assert set(kolumn.batches(tmp_path)["leaderEpoch"].to_pylist()) == {7}
    assert set(kolumn.read(tmp_path, columns=["leaderEpoch"])["leaderEpoch"].to_pylist()) == {7}


def test_the_plan_says_what_decodes(tmp_path: Path) -> None:
    put(tmp_path / "t-0", mixed(log(3), {}).data)
    assert kolumn.explain(tmp_path, format="redpanda").ranges["decoder"].to_pylist() == ["block by block"]
    with without(STREAMED):
        assert kolumn.explain(tmp_path, format="redpanda").ranges["decoder"].to_pylist() == ["stage by stage"]


def test_many_small_segments_are_read(tmp_path: Path) -> None:
    expected, raw, delta = [], 0, 0
    for first in range(0, 60, 3):
        data = b"".join(batch([Record(i, b"k", b"v", i)]) for i in range(first, first + 3))
        made = mixed(data, {0: (CONFIGURATION,)}, raw, delta)
        put(tmp_path / "t-0", made.data, base=raw)
        raw, delta = made.end, made.delta
        expected += made.offsets.values()
    assert offsets(tmp_path, format="redpanda") == expected == list(range(60))
    assert kolumn.verify(tmp_path, format="redpanda").ok


def test_totals_are_those_of_records(tmp_path: Path) -> None:
    put(tmp_path / "t-0", mixed(log(4), {0: (CONFIGURATION,), 2: (ARCHIVAL, UNKNOWN)}).data)
    (row,) = collect(tmp_path, format="redpanda")
    # The unknown batch has an offset that consumers count.
    assert (row["records"], row["firstOffset"], row["lastOffset"]) == (20, 0, 20)
    late = batch([Record(0, b"k", b"v", 5000)])
    put(tmp_path / "u-0", mixed(late, {0: (CONFIGURATION,)}).data)
    (seen,) = overview(tmp_path / "u-0", format="redpanda").partitions
    assert (seen.records, seen.first_ms, seen.last_ms) == (1, 5000, 5000)


def test_an_own_batch_is_listed_by_its_type(tmp_path: Path) -> None:
    put(tmp_path / "t-0", mixed(log(1), {0: (ARCHIVAL,)}).data)
    shown = invoked("inspect", tmp_path, "--format", "redpanda", "--text").output
    assert "type 19" in shown
    assert "type 1 " not in shown


def test_a_report_audits_its_logs(tmp_path: Path) -> None:
    put_on_node(tmp_path, "t-0", mixed(log(3), {1: (CONFIGURATION,)}).data)
    findings = gather(tmp_path)
    assert findings.audit is not None
    assert findings.audit.ok
    assert findings.remarks[0].kind == "own-batches"


@pytest.mark.parametrize("topic", [OFFSETS, STATES])
def test_internal_topics_are_decoded(brokers: tuple[Path, Path], topic: str) -> None:
    kafka, redpanda = (kolumn.read(folder, decode="internal") for folder in (brokers[0] / topic, on_node(brokers[1], topic)))
    assert redpanda.equals(kafka)
    assert redpanda.num_rows > 100


def test_json_values_are_typed(tmp_path: Path) -> None:
    data = b"".join(batch([Record(i, b"k", b'{"n":%d}' % i, i)]) for i in range(10))
    put(tmp_path / "t-0", mixed(data, {3: (CONFIGURATION, CLOUD)}).data)
    table = kolumn.read(tmp_path, format="redpanda", value_format="json", value_schema={"n": "int64"}, columns=["value", "offset"])
    assert [row["value"]["n"] for row in table.to_pylist()] == list(range(10))
    assert table["offset"].to_pylist() == [0, 1, 2, *range(4, 11)]
