"""Redpanda's segments are found on a node, in a bucket and in both, each offset once; what is no part of the log is told."""

import logging
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations import memory
from pyarrow import fs

import kolumn
from kit.asked import offsets, put, skipping, watched
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.fuzz import examples
from kit.outcome import raises
from kit.redpanda import HEADER, TX_FENCE, Mixed, mixed, own_batch, swapped
from kit.redpanda_manifests import NOT_SET, Bucket, Head, Meta, as_binary, as_json, tx_file
from kit.s3 import CREDENTIALS, server
from kolumn.options import Options
from kolumn.readers.plan import live_segments, plan_read
from kolumn.source import storage

CLUSTER = "6e94ccdc-443a-4807-b105-0bb86e8f97f7"
HEAD = Head()
EACH = 20  # records of clients in a segment
ABORT, COMMIT = 0, 1
COLUMNS = ["topic", "partition", "offset", "leaderEpoch", "value"]
COMMITTED: dict[str, Any] = {"isolation_level": "read_committed"}


@dataclass
class Log:
    """Segments of one log with batches of Redpanda's own; their names on a node, and as a manifest has them."""

    parts: list[Mixed]
    metas: list[Meta] = field(default_factory=list)

    def __post_init__(self) -> None:
        raw = delta = 0
        for i, part in enumerate(self.parts):
            deltas = {"delta_offset": delta, "delta_offset_end": part.delta}
            self.metas.append(Meta(raw, part.end - 1, len(part.data), 1 + i // 2, 1 + i // 2, **deltas))
            raw, delta = part.end, part.delta

    @property
    def count(self) -> int:
        return sum(len(part.offsets) for part in self.parts)

    def on_node(self, folder: Path, which: Sequence[int] | None = None) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(len(self.parts)) if which is None else which:
            (folder / self.metas[i].short).write_bytes(self.parts[i].data)
            (folder / self.metas[i].short.replace(".log", ".base_index")).write_bytes(b"hints")
        return folder

    def in_bucket(self, bucket: Bucket, head: Head = HEAD, kind: str = "bin", metas: list[Meta] | None = None) -> Path:
        """Put the objects and their manifest, whose path is returned."""
        for meta, part in zip(self.metas, self.parts, strict=True):
            bucket.put(bucket.key(head, meta), part.data)
        named = self.metas if metas is None else metas
        return bucket.put(bucket.manifest_key(head, kind), as_binary(head, named) if kind == "bin" else as_json(head, named))


def values(first: int, word: bytes = b"v") -> bytes:
    rows = [Record(first + i, b"k", b"%s%d" % (word, first + i), 1000 + i) for i in range(EACH)]
    return b"".join(batch(rows[i : i + 5]) for i in range(0, EACH, 5))


def made(count: int = 6) -> Log:
    parts, raw, delta = list[Mixed](), 0, 0
    for i in range(count):
        parts.append(mixed(values(i * EACH), {0: (2,), 2: (TX_FENCE, 19)}, raw, delta))
        raw, delta = parts[-1].end, parts[-1].delta
    return Log(parts)


LOG = made()
KEYS = [pytest.param(None, id="hashes"), pytest.param(CLUSTER, id="cluster")]


def expected(log: Log = LOG) -> list[int]:
    return [offset for part in log.parts for offset in part.offsets.values()]


def rows(*source: object, **options: Any) -> list[tuple[object, ...]]:
    found = kolumn.read([str(one) for one in source], columns=COLUMNS, **options)
    return [tuple(row.values()) for row in found.to_pylist()]


def all_rows(topic: str = "t", partition: int = 0, log: Log = LOG) -> list[tuple[object, ...]]:
    some = [(offset, meta.segment_term) for meta, part in zip(log.metas, log.parts, strict=True) for offset in part.offsets.values()]
    return [(topic, partition, offset, term, b"v%d" % i) for i, (offset, term) in enumerate(some)]


def told(source: object, **options: Any) -> list[tuple[str, str, int]]:
    """What is left out: the end of its path, the kind, and the number of files."""
    found = live_segments(str(source), Options.of(**options)).left_out().to_pylist()
    return sorted((row["path"].rpartition("/")[2], row["kind"], row["files"]) for row in found)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A node's data directory. A topic's name looks like a topic-partition of Kafka."""
    LOG.on_node(tmp_path / "data/kafka/orders-1/0_18")
    LOG.on_node(tmp_path / "data/kafka/orders-1/10_18", [0])
    LOG.on_node(tmp_path / "data/kafka/pay/2_20", [0, 1])
    for other in ("redpanda/controller/0_0", "redpanda/kvstore/0_0", "kafka_internal/tx/0_1"):
        LOG.on_node(tmp_path / "data" / other, [0])
    return tmp_path / "data"


def test_a_node_is_read_by_any_of_its_folders(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders, alone = all_rows("orders-1"), all_rows("orders-1", 10)[:EACH]
    every = [*orders, *alone, *all_rows("pay", 2)[: 2 * EACH]]
    for source in (data, data / "kafka", data / "kafka/*", data / "kafka/*/*", data / "*/orders-1", f"{data}/kafka/"):
        wanted = every if "orders" not in str(source) else every[: len(orders) + EACH]
        assert rows(source) == wanted
    assert rows(data / "kafka/orders-1/0_18") == orders
    assert rows(data / "kafka/orders-1/0_18/*.log") == orders
    assert rows(*sorted((data / "kafka/orders-1/0_18").glob("*.log"), reverse=True)) == orders
    assert rows(data / f"kafka/orders-1/0_18/{LOG.metas[0].short}") == orders[:EACH]
    monkeypatch.chdir(data / "kafka/orders-1/0_18")
    for name in (".", "../0_18"):
        assert rows(name) == orders
    monkeypatch.chdir(data / "kafka/orders-1")
    assert rows(".", "../pay") == every
    assert rows(data / "kafka/pay/2_20", topic="x", partition=5) == all_rows("x", 5)[: 2 * EACH]


@pytest.mark.parametrize("topic", ["20240101", "meta", "kafka", "redpanda", "0_1-2"])
def test_topics_have_names_of_other_folders(tmp_path: Path, topic: str) -> None:
    for name in (topic, "u"):
        LOG.on_node(tmp_path / "data/kafka" / name / "3_1")
    both = sorted([*all_rows(topic, 3), *all_rows("u", 3)])
    assert sorted(rows(tmp_path / "data")) == sorted(rows(tmp_path / "data/kafka")) == both
    bucket = Bucket(tmp_path / "b")
    for name in (topic, "u"):
        LOG.in_bucket(bucket, Head(name, 3))
    assert sorted(rows(bucket.root)) == both
    assert rows((bucket.root / bucket.manifest_key(Head(topic, 3))).parents[1]) == all_rows(topic, 3)


def test_terms_decide_where_names_have_one_offset(tmp_path: Path) -> None:
    """A leader that found nothing to add to leaves an empty segment."""
    folder = LOG.on_node(tmp_path / "kafka/t/0_1")
    (folder / "0-9-v1.log").write_bytes(b"")
    assert rows(folder) == all_rows()
    assert told(folder) == [("0-9-v1.log", "replaced", 1)]


def test_leaders_that_wrote_nothing(tmp_path: Path) -> None:
    folder = LOG.on_node(tmp_path / "kafka/t/0_18", [0])
    for last in (0, LOG.parts[0].end):
        for term in (8, 9):
            (folder / f"{last}-{term}-v1.log").touch()
    assert rows(folder) == all_rows()[:EACH]
    assert [segment.path.rpartition("/")[2] for segment in live_segments(str(folder), Options.of()).one_log()] == [
        LOG.metas[0].short,
        f"{LOG.parts[0].end}-9-v1.log",
    ]
    (folder / LOG.metas[0].short).unlink()
    (folder / f"{LOG.parts[0].end}-9-v1.log").unlink()
    (folder / f"{LOG.parts[0].end}-8-v1.log").unlink()
    assert rows(tmp_path) == []


def test_two_segments_with_batches_at_one_offset(tmp_path: Path) -> None:
    """No node leaves such, and no offset is read twice: what the later leader wrote is the log."""
    folder = LOG.on_node(tmp_path / "kafka/t/0_18")
    name = LOG.metas[2].short
    stale = folder / name.replace(f"-{LOG.metas[2].segment_term}-", "-1-")
    assert stale.name != name
    stale.write_bytes(LOG.parts[2].data[:200])
    raises(kolumn.CorruptBatchError, rf"expected one segment that begins at offset .*, found {name} too", rows, folder)
    assert rows(folder, errors="skip") == all_rows()
    report = kolumn.verify(folder)
    assert (report.ok, report.damage["segment"].to_pylist()) == (False, [str(stale)])


def test_logs_of_redpanda_itself_are_told_and_read_if_they_are_named(data: Path) -> None:
    assert told(data) == [("kafka_internal", "foreign", 1 + 1), ("redpanda", "foreign", 2 + 2)]
    reasons = live_segments(str(data), Options.of()).left_out()["reason"].to_pylist()
    assert all("Redpanda's own logs" in reason for reason in reasons)
    assert {row[0] for row in rows(data / "redpanda")} == {"controller", "kvstore"}
    assert rows(data / "redpanda/controller") == all_rows("controller")[:EACH]
    assert rows(data / "kafka_internal/tx/0_1") == all_rows("tx")[:EACH]


def test_the_format_is_found(data: Path, tmp_path: Path) -> None:
    live = live_segments(str(data), Options.of())
    assert (live.options.format, {segment.format for segment in live.segments}) == ("redpanda", {"redpanda"})
    copy = tmp_path / "copied.bin"
    copy.write_bytes(LOG.parts[0].data)
    kafka = tmp_path / "kafka.bin"
    kafka.write_bytes(values(0))
    for source in (copy, LOG.parts[0].data, memoryview(LOG.parts[0].data)):
        assert offsets(source) == list(LOG.parts[0].offsets.values())
    for name, kind in ((copy, "redpanda"), (kafka, "kafka")):
        assert live_segments(str(name), Options.of()).options.format == kind
    # One whose first batch is damaged is known by its name.
    path = data / "kafka/orders-1/0_18/0-1-v1.log"
    path.write_bytes(b"\xff" * 30 + path.read_bytes()[30:])
    assert live_segments(str(path), Options.of()).options.format == "redpanda"
    # Space that was allocated in advance.
    last = path.with_name("900-9-v1.log")
    last.write_bytes(bytes(4096))
    assert offsets(last) == []
    assert kolumn.verify(last).ok


def test_kafkas_and_redpandas_logs_in_one_read(data: Path, tmp_path: Path) -> None:
    kafka = put(tmp_path / "k" / "u-3", values(0)).parent
    both = rows(kafka, data / "kafka/orders-1/0_18")
    assert sorted(both) == sorted([*(("u", 3, i, 0, b"v%d" % i) for i in range(EACH)), *all_rows("orders-1")])
    live = live_segments([str(kafka), str(data)], Options.of())
    assert {segment.format for segment in live.segments} == {"kafka", "redpanda"}
    assert kolumn.verify([kafka, data / "kafka"]).ok


def test_a_folder_of_kafka_among_redpandas_topics_is_told(data: Path) -> None:
    put(data / "kafka/u-0", values(0))
    assert {row[0] for row in rows(data)} == {"orders-1", "pay"}
    assert ("u-0", "foreign", 1) in told(data)


def test_kafkas_names_with_redpandas_batches_need_the_format(tmp_path: Path) -> None:
    path = put(tmp_path / "t-0", swapped(values(0)))
    raises(kolumn.KolumnError, "format='redpanda'", kolumn.read, path)
    assert offsets(path, format="redpanda") == list(range(EACH))


@pytest.mark.parametrize("kind", ["bin", "json"])
@pytest.mark.parametrize("cluster", KEYS)
def test_a_bucket_is_read_by_any_of_its_folders(tmp_path: Path, cluster: str | None, kind: str) -> None:
    bucket = Bucket(tmp_path / "b", cluster)
    manifest = LOG.in_bucket(bucket, kind=kind)
    for _ in range(7):
        assert rows(manifest) == all_rows()
        manifest = manifest.parent
    assert rows(manifest / "b/*") == all_rows() if cluster else rows(bucket.root) == all_rows()
    assert told(bucket.root) == []
    assert offsets(bucket.root, start_offset=50, end_offset=70) == [i for i in expected() if 50 <= i < 70]
    report = kolumn.verify(bucket.root)
    assert (report.ok, report.segments.num_rows, report.left_out.num_rows) == (True, len(LOG.parts), 0)


@pytest.mark.parametrize("cluster", KEYS)
def test_only_what_the_manifest_names_is_read(tmp_path: Path, cluster: str | None) -> None:
    """Objects of before a compaction, of an upload that was not finished, and of before the start of the log."""
    bucket, first = Bucket(tmp_path / "b", cluster), LOG.metas[2].base_offset
    head = replace(HEAD, start_offset=first)
    LOG.in_bucket(bucket, head)
    LOG.in_bucket(bucket, Head("u", 3, 20))
    old = replace(LOG.metas[3], size_bytes=999, archiver_term=7)
    late = Meta(LOG.parts[-1].end, LOG.parts[-1].end + 3, 50)
    for meta in (old, late):
        bucket.put(bucket.key(head, meta), b"never read")
    assert [row for row in rows(bucket.root) if row[0] == "t"] == all_rows()[2 * EACH :]
    assert [row for row in rows(bucket.root) if row[0] == "u"] == all_rows("u", 3)
    gone = [(f"{meta.name}{meta.suffix}", "deleted", 1) for meta in LOG.metas[:2]]
    others = [(f"{meta.name}{meta.suffix}", "replaced", 1) for meta in (old, late)]
    assert told(bucket.root) == sorted([*gone, *others])


def test_records_that_were_deleted_are_not_read(tmp_path: Path) -> None:
    """The manifest says where the log begins for consumers; the rest of the first segment is there until all of it goes."""
    bucket = Bucket(tmp_path / "b")
    LOG.in_bucket(bucket, replace(HEAD, start_kafka_offset=29))
    node = LOG.on_node(tmp_path / "n/kafka/t/0_18", [0, 1])
    kept = [offset for offset in expected() if offset >= 29]
    for source in ([bucket.root], [bucket.root, node]):
        assert offsets(source) == offsets(source, include_deleted_records=False) == kept
        assert offsets(source, include_deleted_records=True) == expected()
        assert offsets(source, start_offset=40) == [offset for offset in kept if offset >= 40]
        assert offsets(source, start_offset=5, end_offset=31) == [29, 30]


def test_a_log_all_of_whose_uploaded_records_were_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The node had more than the bucket when they were deleted."""
    bucket = Bucket(tmp_path / "b")
    LOG.in_bucket(bucket, replace(HEAD, start_kafka_offset=10_000))
    assert offsets(bucket.root) == []
    assert "the log begins at consumer offset 10000, by start_kafka_offset, after its last record: all were deleted" in caplog.text
    assert offsets(bucket.root, include_deleted_records=True) == expected()


def test_deleted_records_that_are_converted_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bucket = Bucket(tmp_path / "b")
    LOG.in_bucket(bucket, replace(HEAD, start_kafka_offset=29))
    kolumn.convert(bucket.root, tmp_path / "kafka", source_format="redpanda")
    assert offsets(tmp_path / "kafka") == expected()
    assert caplog.text.count("records before offset 29 were deleted, and those that are there are in the result") == 1


@pytest.mark.parametrize("cluster", KEYS)
def test_names_of_objects_count_without_a_manifest(tmp_path: Path, cluster: str | None) -> None:
    bucket = Bucket(tmp_path / "b", cluster)
    shutil.rmtree(LOG.in_bucket(bucket).parents[3])
    assert rows(bucket.root, start_delta=None) == all_rows()
    path = next(bucket.root.rglob(f"{LOG.metas[0].name}*"))
    assert rows(path) == all_rows()[:EACH]


@pytest.mark.parametrize("cluster", KEYS)
def test_segments_outside_of_a_range_are_not_read(tmp_path: Path, cluster: str | None) -> None:
    bucket = Bucket(tmp_path / "b", cluster)
    LOG.in_bucket(bucket)
    for start, end, count in ((0, 5, 1), (45, 60, 2), (100, None, 2), (None, 21, 1), (10**6, None, 0)):
        plan = plan_read(str(bucket.root), Options.of(columns=["offset"], start_offset=start, end_offset=end))
        assert len([part for part in plan.ranges if not part.is_lost]) <= count + 1


def test_a_manifest_beside_its_segments(tmp_path: Path) -> None:
    folder = tmp_path / "copied"
    folder.mkdir()
    for meta, part in zip(LOG.metas, LOG.parts, strict=True):
        (folder / f"{meta.name}{meta.suffix}").write_bytes(part.data)
    (folder / "manifest.bin").write_bytes(as_binary(Head("x", 4), LOG.metas))
    assert rows(folder) == rows(folder / "manifest.bin") == all_rows("x", 4)


def test_both_kinds_of_manifests_and_names_of_segments(tmp_path: Path) -> None:
    """After an upgrade both manifests are there, and the binary one counts. Old segments keep their short names and their revision."""
    formats = [(1, NOT_SET, NOT_SET), (1, 1, 12), (2, 2, 12), (3, 3, 18), (3, 3, NOT_SET), (3, 4, 18)]
    names = ("sname_format", "archiver_term", "ntp_revision")
    metas = [replace(meta, **dict(zip(names, how, strict=True))) for meta, how in zip(LOG.metas, formats, strict=True)]
    bucket, log = Bucket(tmp_path / "b"), Log(LOG.parts, metas)
    log.metas[len(LOG.parts) :] = []
    log.in_bucket(bucket)
    bucket.put(bucket.manifest_key(HEAD, "json"), as_json(HEAD, metas[:2]))
    assert rows(bucket.root) == all_rows()


@pytest.mark.parametrize("says", [True, False])
def test_spillover_manifests(tmp_path: Path, says: bool) -> None:
    """The older part of a log is in manifests of its own."""
    bucket, at = Bucket(tmp_path / "b", CLUSTER), [meta.base_offset for meta in LOG.metas]
    head = replace(HEAD, start_offset=at[4], archive_start_offset=at[1], last_offset=LOG.parts[-1].end - 1)
    manifest = LOG.in_bucket(bucket, head)
    older = [LOG.metas[:2], LOG.metas[2:4]]
    noted = [replace(own[0], committed_offset=own[-1].committed_offset) for own in older]
    manifest.write_bytes(as_binary(head, LOG.metas[4:], spilled=noted if says else None))
    names = [f"manifest.bin.{one.base_offset}.{one.committed_offset}.0.1.2.3" for one in noted]
    for name, own in zip(names, older, strict=True):
        (manifest.parent / name).write_bytes(as_binary(replace(head, start_offset=NOT_SET), own))
    (manifest.parent / "manifest.bin.0.9999.0.1.2.3").write_bytes(b"of another time")
    if not says:
        (manifest.parent / "manifest.bin.0.9999.0.1.2.3").unlink()
    assert rows(bucket.root) == rows(manifest) == all_rows()[EACH:]
    assert told(bucket.root) == [(f"{LOG.metas[0].name}{LOG.metas[0].suffix}", "deleted", 1)]
    (manifest.parent / names[1]).write_bytes(b"broken")
    raises(kolumn.CorruptBatchError, names[1], kolumn.read, bucket.root)
    found, skipped = skipping(bucket.root, columns=["offset"])
    assert found["offset"].to_pylist() == expected()[EACH : 2 * EACH] + expected()[4 * EACH :]
    assert names[1] in str(skipped.damage[0])
    if says:
        (manifest.parent / names[1]).unlink()
        raises(kolumn.CorruptBatchError, "no file", kolumn.read, bucket.root)


@pytest.mark.parametrize("cluster", KEYS)
def test_objects_that_are_missing_are_damage(tmp_path: Path, cluster: str | None) -> None:
    bucket = Bucket(tmp_path / "b", cluster)
    LOG.in_bucket(bucket)
    key = bucket.key(HEAD, LOG.metas[2])
    (bucket.root / key).unlink()
    raises(kolumn.CorruptBatchError, f"{key}: .*no such object", kolumn.read, bucket.root)
    found, skipped = skipping(bucket.root, columns=["offset"])
    assert found["offset"].to_pylist() == expected()[: 2 * EACH] + expected()[3 * EACH :]
    assert [key in str(damage) for damage in skipped.damage] == [True]
    report = kolumn.verify(bucket.root)
    assert (report.ok, key in str(report.damage.to_pylist())) == (False, True)


def test_a_manifest_that_cannot_be_used_is_damage(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "b")
    manifest = LOG.in_bucket(bucket)
    LOG.in_bucket(bucket, Head("u"))
    good = manifest.read_bytes()
    for bad in (good[:-9], b"", good.replace(b"kafka", b"kafkb"), good.replace(b"\x01\0\0\0t", b"\x01\0\0\0u")):
        manifest.write_bytes(bad)
        raises(kolumn.CorruptBatchError, "manifest.bin", kolumn.read, bucket.root)
        found, skipped = skipping(bucket.root, columns=COLUMNS)
        assert [tuple(row.values()) for row in found.to_pylist()] == all_rows("u")
        assert "manifest" in str(skipped.damage[0])
    report = kolumn.verify(bucket.root)
    assert (report.ok, report.damage.num_rows) == (False, 1)


def test_changed_bytes_of_a_manifest_are_no_other_errors(tmp_path: Path) -> None:
    """No checksum covers a manifest. What is read then is of the log, and what is named and not there is damage."""
    rng, bucket = random.Random(41), Bucket(tmp_path / "b")
    manifest = LOG.in_bucket(bucket)
    good, known = manifest.read_bytes(), {row[4] for row in all_rows()}
    for _ in range(examples(300)):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        manifest.write_bytes(bad)
        with suppress(kolumn.KolumnError):
            found, skipped = skipping(bucket.root, columns=["value"])
            assert {*found["value"].to_pylist()} <= known
            assert found.num_rows == len(known) or skipped.damage or told(bucket.root)


def test_an_object_of_another_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bucket, meta = Bucket(tmp_path / "b", CLUSTER), LOG.metas[5]
    LOG.in_bucket(bucket)
    path = bucket.root / bucket.key(HEAD, meta)
    path.write_bytes(path.read_bytes()[:-10])
    found, _ = skipping(bucket.root, columns=["offset"])
    assert found["offset"].to_pylist() == expected()[:-5]
    assert f"has {meta.size_bytes - 10} bytes, and {meta.size_bytes} in" in caplog.text


@pytest.mark.parametrize("replicas", ["raise", "first", "merge"])
@pytest.mark.parametrize("cluster", KEYS)
def test_a_node_and_a_bucket_are_one_log(tmp_path: Path, cluster: str | None, replicas: Any) -> None:
    """The node has the end of the log, and some of it is in the bucket too."""
    bucket = Bucket(tmp_path / "b", cluster)
    LOG.in_bucket(bucket, replace(HEAD, start_offset=0))
    for kept in ([5], [3, 4, 5], range(6)):
        node = LOG.on_node(tmp_path / f"n{len(kept)}/kafka/t/0_18", kept)
        for source in ((node, bucket.root), (bucket.root, tmp_path / f"n{len(kept)}")):
            assert rows(*source, replicas=replicas) == all_rows()
            assert offsets([*source], replicas=replicas, start_offset=45, end_offset=110) == [i for i in expected() if 45 <= i < 110]


@pytest.mark.parametrize("replicas", ["first", "merge"])
def test_a_manifest_tells_how_a_node_that_begins_before_it_differs(tmp_path: Path, replicas: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The bucket has less of the log than the node, or the node is named first and nothing is read of the bucket."""
    bucket = Bucket(tmp_path / "b")
    node = LOG.on_node(tmp_path / "n/kafka/t/0_18", range(1, len(LOG.metas)))
    for first in (1, 3):
        shutil.rmtree(bucket.root, ignore_errors=True)
        LOG.in_bucket(bucket, metas=LOG.metas[first:])
        for source in ([node, bucket.root], [bucket.root, node]):
            assert rows(*source, replicas=replicas) == all_rows()[EACH:]
            assert offsets([str(one) for one in source], replicas=replicas, start_offset=31, end_offset=50) == [
                offset for offset in expected() if 31 <= offset < 50
            ]
    # Its last segment says by how much they differ after it.
    shutil.rmtree(bucket.root)
    LOG.in_bucket(bucket, metas=LOG.metas[:1])
    next(bucket.root.rglob(f"{LOG.metas[0].name}*")).write_bytes(b"")
    assert rows(node, bucket.root, replicas=replicas, errors="skip") == all_rows()[EACH:]
    assert "no manifest says" not in caplog.text


@pytest.mark.parametrize("in_bucket", [False, True])
def test_copies_are_merged_whose_first_batch_is_damaged(tmp_path: Path, in_bucket: bool) -> None:
    """Its header says still that consumers do not count it."""
    nodes = [LOG.on_node(tmp_path / f"{i}/kafka/t/0_18", [1] if in_bucket else [0, 1]) for i in range(2)]
    if in_bucket:
        LOG.in_bucket(bucket := Bucket(tmp_path / "b"), metas=LOG.metas[1:2])
        nodes = [bucket.root, nodes[0]]
    for folder in nodes:
        path = next(folder.rglob(f"{LOG.metas[int(in_bucket)].base_offset}-*v1.log*"))
        data = bytearray(path.read_bytes())
        data[HEADER] ^= 1
        path.write_bytes(data)
    wanted = all_rows()[EACH : 2 * EACH] if in_bucket else all_rows()[: 2 * EACH]
    assert rows(*nodes, replicas="merge", errors="skip") == wanted


def test_offsets_before_a_hole_of_compaction(tmp_path: Path) -> None:
    """Batches that no consumer counted were removed at the end of a segment: only the manifest tells of them."""
    parts = [mixed(values(0), {2: (2,)}), mixed(values(EACH), {1: (19,)}, 30, 10)]
    log = Log(parts)
    log.metas[0] = replace(log.metas[0], committed_offset=29, delta_offset_end=10)
    log.metas[1] = replace(log.metas[1], base_offset=30, delta_offset=10)
    log.in_bucket(bucket := Bucket(tmp_path / "b"))
    assert expected(log) == list(range(2 * EACH))
    for start in range(2 * EACH + 1):
        assert offsets(bucket.root, start_offset=start) == list(range(start, 2 * EACH))
        assert offsets(bucket.root, end_offset=start) == list(range(start))


def test_segments_of_a_node_and_of_a_bucket_begin_at_other_offsets(tmp_path: Path) -> None:
    """Uploads join segments of a node, which may be at other offsets on each."""
    joined = mixed(values(0) + values(EACH), {0: (2,), 2: (TX_FENCE, 19), 4: (2,), 6: (TX_FENCE, 19)})
    bucket = Bucket(tmp_path / "b", CLUSTER)
    meta = Meta(0, joined.end - 1, len(joined.data), delta_offset_end=joined.delta)
    bucket.put(bucket.key(HEAD, meta), joined.data)
    bucket.put(bucket.manifest_key(HEAD), as_binary(HEAD, [meta]))
    for which, count in (([1, 2], 3), ([0], 2), ([0, 1, 2], 3)):
        node = LOG.on_node(tmp_path / f"n{len(which)}/kafka/t/0_18", which)
        assert rows(bucket.root, node) == all_rows()[: count * EACH]
        for start in range(0, 60, 7):
            wanted = [i for i in expected()[: count * EACH] if start <= i < start + 9]
            assert offsets([bucket.root, node], start_offset=start, end_offset=start + 9) == wanted


def test_offsets_of_a_leader_whose_log_was_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A node has more of term 1 than the leader of term 2 knew of, which the bucket has."""
    bucket = Bucket(tmp_path / "b", CLUSTER)
    LOG.in_bucket(bucket)
    long = mixed(values(EACH) + values(2 * EACH, b"w"), {0: (2,), 2: (TX_FENCE, 19)}, LOG.metas[1].base_offset, LOG.metas[1].delta_offset)
    node = tmp_path / "n/kafka/t/0_18"
    node.mkdir(parents=True)
    (node / LOG.metas[1].short).write_bytes(long.data)
    assert rows(node, bucket.root) == all_rows()


def transactional(offset: int, word: bytes, producer: int) -> bytes:
    return batch([Record(offset, b"k", word)], flags=TRANSACTIONAL, producer_id=producer, producer_epoch=0)


def marked(*entries: bytes) -> Log:
    """A log of two segments, of which each batch has one record."""
    half = len(entries) // 2
    first = mixed(b"".join(entries[:half]), {})
    return Log([first, mixed(b"".join(entries[half:]), {}, first.end, 0)])


def test_markers_decide_about_transactions(tmp_path: Path) -> None:
    log = marked(
        transactional(0, b"no", 7), transactional(1, b"yes", 8), control_batch(2, ABORT, producer_id=7), transactional(3, b"yes", 7),
        control_batch(4, COMMIT, producer_id=8), control_batch(5, COMMIT, producer_id=7), transactional(6, b"open", 9), batch([Record(7)]),
    )  # fmt: skip
    bucket = Bucket(tmp_path / "b")
    log.in_bucket(bucket)
    node = log.on_node(tmp_path / "n/kafka/t/0_18")
    for source in ([bucket.root], [node], [node, bucket.root], [bucket.root, log.on_node(tmp_path / "m/kafka/t/0_18", [1])]):
        assert offsets(source, **COMMITTED) == [1, 3]


def test_lists_of_aborted_transactions_stand_for_markers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Compaction has removed the marker of an aborted transaction: without the list it would go on to the next marker."""
    log = marked(
        transactional(0, b"no", 7), transactional(1, b"yes", 8), batch([Record(2)]), transactional(3, b"yes", 7),
        control_batch(4, COMMIT, producer_id=8), control_batch(5, COMMIT, producer_id=7), transactional(6, b"no", 9), batch([Record(7)]),
    )  # fmt: skip
    bucket = Bucket(tmp_path / "b", CLUSTER)
    log.in_bucket(bucket)
    assert offsets(bucket.root, **COMMITTED) == [0, 1, 2, 3]
    paths = [bucket.root / f"{bucket.key(HEAD, meta)}.tx" for meta in log.metas]
    paths[0].write_bytes(tx_file([(7, 0, 2)]))
    paths[1].write_bytes(tx_file([(9, 6, 7)]))
    assert offsets(bucket.root, **COMMITTED) == [1, 2, 3, 7]
    for replicas in ("first", "merge"):
        assert offsets(bucket.root, replicas=replicas, **COMMITTED) == [1, 2, 3, 7]
    states = kolumn.read(bucket.root, columns=["offset", "transaction"]).to_pylist()
    assert [row["transaction"] for row in states if row["offset"] in (0, 3, 6, 7)] == ["aborted", "committed", "aborted", "none"]
    assert told(bucket.root) == []
    # By its name alone, by a glob, and without a manifest.
    name = str(paths[0]).removesuffix(".tx")
    for named in (name, f"{name[:-1]}?"):
        alone = kolumn.read(named, columns=["transaction"])
        assert alone["transaction"].to_pylist()[:3] == ["aborted", "open", "none"]
    shutil.rmtree(bucket.root / CLUSTER / "meta")
    assert offsets(bucket.root, **COMMITTED) == [1, 2, 3, 7]
    paths[0].write_bytes(b"{")
    with caplog.at_level(logging.WARNING):
        assert offsets(bucket.root, **COMMITTED) == [0, 1, 2, 3, 7]
    assert "not a list of aborted transactions" in caplog.text


def test_lists_agree_with_markers(tmp_path: Path) -> None:
    """Of a log that was not compacted they change nothing."""
    log = marked(
        transactional(0, b"no", 7), control_batch(1, ABORT, producer_id=7), transactional(2, b"yes", 7), transactional(3, b"no", 8),
        control_batch(4, COMMIT, producer_id=7), control_batch(5, ABORT, producer_id=8), transactional(6, b"no", 7),
        control_batch(7, ABORT, producer_id=7), transactional(8, b"open", 7), batch([Record(9)]),
    )  # fmt: skip
    bucket = Bucket(tmp_path / "b")
    log.in_bucket(bucket)
    assert offsets(bucket.root, **COMMITTED) == [2]
    assert offsets(bucket.root, open_transactions="skip", **COMMITTED) == [2, 9]
    for start in (0, 2, 9):
        skipped = kolumn.Skipped()
        assert kolumn.read(bucket.root, on_damage=skipped, start_offset=start, **COMMITTED).num_rows == (start < 9)
        # In consumer offsets.
        assert [(one.offset, one.producer_id, one.records) for one in skipped.stopped] == [(8, 7, 1)]
    for meta, ranges in zip(log.metas, ([(7, 0, 1), (8, 3, 5)], [(8, 3, 5), (7, 6, 7)]), strict=True):
        bucket.put(f"{bucket.key(HEAD, meta)}.tx", tx_file(ranges))
    assert offsets(bucket.root, **COMMITTED) == [2]


@pytest.fixture
def remote() -> Iterator[Callable[[Path, str], str]]:
    """Puts a folder into a store without folders."""
    store = memory.MemoryFileSystem()
    store.store.clear()
    store.pseudo_dirs[:] = [""]

    def upload(folder: Path, name: str) -> str:
        for path in folder.rglob("*"):
            if path.is_file():
                store.pipe(f"/{name}/{path.relative_to(folder)}", path.read_bytes())
        return f"memory://{name}"

    yield upload
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("cluster", KEYS)
def test_a_bucket_at_a_url(tmp_path: Path, cluster: str | None, remote: Callable[[Path, str], str]) -> None:
    bucket = Bucket(tmp_path / "b", cluster)
    manifest = LOG.in_bucket(bucket)
    url = remote(bucket.root, "bucket")
    place = f"{url}/{manifest.relative_to(bucket.root)}"
    while place.count("/") > 2:
        assert rows(place) == all_rows()
        place = place.rpartition("/")[0]
    node = LOG.on_node(tmp_path / "n/kafka/t/0_18", [4, 5])
    assert rows(node, url) == all_rows()
    memory.MemoryFileSystem().rm(f"/bucket/{bucket.key(HEAD, LOG.metas[1])}")
    raises(kolumn.CorruptBatchError, "no such object", kolumn.read, url)
    found, _ = skipping(url, columns=["offset"])
    assert found["offset"].to_pylist() == expected()[:EACH] + expected()[2 * EACH :]
    assert rows(remote(tmp_path / "n", "node"), start_delta=LOG.metas[4].delta_offset) == all_rows()[4 * EACH :]


def test_a_bucket_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of keys that are not there are no errors of the store."""
    bucket = Bucket(tmp_path / "b")
    LOG.in_bucket(bucket)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with server() as address:
        store = fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
        store.create_dir("bucket")
        fs.copy_files(str(bucket.root), "bucket/x", destination_filesystem=store)
        url = f"s3://bucket/x?endpoint_override={address}&scheme=http"
        assert rows(url) == all_rows()
        store.delete_file(f"bucket/x/{bucket.key(HEAD, LOG.metas[1])}")
        found, skipped = skipping(url, columns=["offset"])
    assert found["offset"].to_pylist() == expected()[:EACH] + expected()[2 * EACH :]
    assert "no such object" in str(skipped.damage)


def test_kafkas_logs_at_a_url_cost_no_more_requests(
    tmp_path: Path, remote: Callable[[Path, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        put(tmp_path / "k" / f"t-{i}", values(0))
    url = remote(tmp_path / "k", "kafka")
    listed, read = watched(monkeypatch, storage, "listing"), watched(monkeypatch, storage, "read_bytes")
    assert len(offsets(url)) == 3 * EACH
    assert len(listed) <= 4 + 3
    assert not [call for call in read if "manifest.bin" in str(call) or ".tx" in str(call)]


def test_batches_of_redpanda_itself_alone(tmp_path: Path) -> None:
    folder = tmp_path / "kafka/t/0_1"
    folder.mkdir(parents=True)
    (folder / "0-1-v1.log").write_bytes(own_batch(0) + own_batch(1))
    assert rows(folder) == []
    assert kolumn.batches(folder).num_rows == 2
