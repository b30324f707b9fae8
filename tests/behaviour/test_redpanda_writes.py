"""What is written in Redpanda's format, and logs of Redpanda that become logs of Kafka, or the other way round."""

import struct
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit import object_store, redpanda
from kit.corpus import HERE, Case, cases
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch, message
from kit.outcome import raises
from kolumn.core.errors import ArgumentError, CorruptBatchError

assert object_store.ObjectStore.protocol == "objects"
TIME = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OWN, ELSEWHERE, EPOCHS, HORIZONS = (
    "batches of Redpanda's own", "batches whose records are in other objects", "leader epochs", "delete horizons",
)  # fmt: skip
COLUMNS = [
    "offset", "key", "value", "headers", "timestampMs", "timestampType", "producerId", "producerEpoch", "sequence", "isTransactional",
    "isControl", "controlType", "transaction",
]  # fmt: skip
TRANSACTIONS = HERE / "transactional" / "txn-lz4-0"


def log_of(folder: Path) -> bytes:
    """The bytes of a log of Kafka."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def put(folder: Path, *segments: bytes, term: int = 0) -> Path:
    """A log of Redpanda, each segment named by its first offset."""
    folder.mkdir(parents=True)
    for data in segments:
        base = struct.unpack_from("<q", data, 8)[0] if data else 0
        (folder / f"{base}-{term}-v1.log").write_bytes(data)
    return folder


def converted(source: Path, target: Path, **options: Any) -> tuple[kolumn.Conversion, Path]:
    """A log of Redpanda is converted; returned is the folder of the partition too."""
    done = kolumn.convert(source, target, source_format="redpanda", **options)
    return done, Path(done.segments[0]).parent


def is_sound(path: Path) -> bool:
    """Whether both checksums of each batch are right, and nothing else is in the file."""
    return sum(size for _, size, *_ in redpanda.headers(path.read_bytes())) == path.stat().st_size


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows(source: Any, format: str = "kafka", **options: Any) -> pa.Table:
    return kolumn.read(source, columns=COLUMNS, include_control=True, format=format, **options)


@pytest.mark.parametrize("codec", CODECS)
def test_columns_become_segments_of_terms(tmp_path: Path, codec: Any) -> None:
    number = 1000
    table = pa.table(
        {
            "offset": pa.array([10 + 2 * i for i in range(number)], pa.int64()),
            "key": [None if i % 7 == 0 else b"k%d" % i for i in range(number)],
            "value": [None if i % 5 == 0 else b"v" * (i % 50) for i in range(number)],
            "timestampMs": pa.array([TIME + i for i in range(number)], pa.int64()),
            "leaderEpoch": pa.array([-1 if i < 100 else 3 if i < 600 else 5 for i in range(number)], pa.int32()),
        }
    )
    written = kolumn.write(table, tmp_path / "0_1", format="redpanda", codec=codec, batch_bytes=3000)
    assert names(tmp_path / "0_1") == ["10-0-v1.log", "1210-5-v1.log", "210-3-v1.log"]
    assert all(map(is_sound, map(Path, written)))
    found = kolumn.read(written, format="redpanda", columns=["offset", "key", "value", "timestampMs", "codec"])
    assert found.drop(["codec"]).equals(table.drop(["leaderEpoch"]))
    assert pc.unique(found["codec"]).to_pylist() == [codec]


def test_a_segment_file_has_the_name_that_was_given(tmp_path: Path) -> None:
    table = pa.table({"value": [b"a", b"b"], "leaderEpoch": pa.array([1, 2], pa.int32())})
    assert kolumn.write(table, tmp_path / "any.log", format="redpanda") == [str(tmp_path / "any.log")]
    assert names(tmp_path) == ["any.log"]
    assert [kind for *_, kind, _ in redpanda.headers((tmp_path / "any.log").read_bytes())] == [redpanda.DATA] * 2


def unchanged(case: Case) -> bool:
    """Whether all of a log is batches of format 2 that Redpanda can store."""
    found = kolumn.batches(case.directory)
    whole = pc.sum(found["size"]).as_py() or 0
    return (
        whole == len(log_of(case.directory))
        and not set(found["magic"].to_pylist()) - {2}
        and found["deleteHorizonMs"].null_count == len(found)
    )


SAME = [case for case in cases() if not case.directory.parent.name.startswith(("v0", "v1", "compacted", "upgraded", "unclean", "make"))]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_a_log_of_kafka_there_and_back(tmp_path: Path, case: Case) -> None:
    """Only headers change, by the kit's own rule, and all bytes come back."""
    if not unchanged(case):
        pytest.skip("not all of it is batches of format 2")
    folder = case.directory
    topic, partition = folder.name.rsplit("-", 1)
    there = kolumn.convert(folder, tmp_path / "there", format="redpanda")
    own = tmp_path / "there" / topic / f"{partition}_0"
    assert sorted(there.segments) == sorted(map(str, own.iterdir()))
    assert there.copied == there.batches
    assert not there.lost
    in_order = sorted(own.iterdir(), key=lambda path: int(path.name.partition("-")[0]))
    assert b"".join(path.read_bytes() for path in in_order) == redpanda.swapped(log_of(folder))
    back, made = converted(own, tmp_path / "back")
    assert back.copied == back.batches == there.batches
    assert log_of(made) == log_of(folder)
    if len(there.segments) == len(list(folder.glob("*.log"))):
        assert [path.name for path in sorted((made).glob("*.log"))] == [path.name for path in sorted(folder.glob("*.log"))]
    assert kolumn.verify(made).ok


@pytest.mark.parametrize("name", ["compacted/compact-txn-0", "upgraded/upgraded-lz4-0", "v0/v0-lz4-0", "v1/v1-lz4-0"])
def test_what_redpanda_cannot_store_is_counted(tmp_path: Path, name: str) -> None:
    done = kolumn.convert(HERE / name, tmp_path, format="redpanda")
    assert all(map(is_sound, map(Path, done.segments)))
    # Format 0 has no timestamps, and segments that are named one by one are no log with transactions.
    columns = [column for column in COLUMNS if column not in ("timestampType", "transaction")]
    in_order = sorted(done.segments, key=lambda path: int(Path(path).name.partition("-")[0]))
    assert rows(in_order, "redpanda").select(columns).equals(rows(HERE / name).select(columns))
    horizons = kolumn.batches(HERE / name)["deleteHorizonMs"]
    assert done.lost == ({HORIZONS: len(horizons) - horizons.null_count} if horizons.null_count < len(horizons) else {})
    assert set(done.lost) <= set(kolumn.losses("kafka", "redpanda")) == {EPOCHS, HORIZONS}


def test_epochs_that_a_segment_file_does_not_name_are_lost(tmp_path: Path) -> None:
    source = tmp_path / "00000000000000000000.log"
    source.write_bytes(b"".join(batch([Record(i, None, b"v", TIME), Record(i + 1, None, b"v", TIME)], leader_epoch=i) for i in (0, 2, 4)))
    assert kolumn.convert(source, tmp_path / "any.log", format="redpanda").lost == {EPOCHS: 6}
    assert kolumn.convert(source, tmp_path / "0-2-v1.log", format="redpanda").lost == {EPOCHS: 4}
    assert (tmp_path / "any.log").read_bytes() == (tmp_path / "0-2-v1.log").read_bytes() == redpanda.swapped(source.read_bytes())
    assert not kolumn.convert(source, tmp_path / "folder", format="redpanda").lost
    assert names(tmp_path / "folder") == ["0-0-v1.log", "2-2-v1.log", "4-4-v1.log"]


def test_batches_of_redpandas_own_are_left_out_and_offsets_are_those_of_consumers(tmp_path: Path) -> None:
    own: dict[int, tuple[int, ...]] = {0: (2, 2), 3: (10,), 5: (19, 36, 40), 60: (2, 19), 100: (7,)}
    log = redpanda.mixed(log_of(TRANSACTIONS), own)
    cut = [at for at, *_ in redpanda.headers(log.data)]
    source = put(tmp_path / "0_7", log.data[: cut[30]], log.data[cut[30] : cut[68]], log.data[cut[68] :], term=4)
    before = kolumn.read(source, format="redpanda", columns=["rawOffset", *COLUMNS[1:]])
    done, made = converted(source, tmp_path / "k")
    assert done.lost == {OWN: 8, ELSEWHERE: 1}
    assert set(done.lost) <= set(kolumn.losses("redpanda"))
    assert done.copied == done.batches == len(cut) - 9
    after = kolumn.read(made, columns=[*COLUMNS, "leaderEpoch"])
    raw = sorted(range(len(before)), key=lambda row: before["rawOffset"][row].as_py())
    assert after["offset"].to_pylist() == [log.offsets[before["rawOffset"][row].as_py()] for row in raw]
    assert after.select(COLUMNS[1:-1]).equals(before.drop(["rawOffset", "transaction"]).take(raw))
    assert after["transaction"].equals(kolumn.read(TRANSACTIONS, columns=["transaction"])["transaction"])
    assert set(after["leaderEpoch"].to_pylist()) == {4}
    assert kolumn.verify(made).ok
    begins = [log.offsets[struct.unpack_from("<q", log.data, at + 8)[0]] for at in (cut[30], cut[68])]
    assert names(made) == sorted(f"{base:020}{end}" for base in (0, *begins) for end in (".log", ".index", ".timeindex"))
    # Markers are records of clients.
    assert pc.sum(kolumn.batches(made)["isControl"]).as_py() == pc.sum(kolumn.batches(TRANSACTIONS)["isControl"]).as_py()


def test_offsets_of_a_log_that_begins_later_stay_raw(tmp_path: Path) -> None:
    log = redpanda.mixed(log_of(TRANSACTIONS), {4: (2,)}, raw=500, delta=37)
    _, made = converted(put(tmp_path / "0_7", log.data), tmp_path / "k")
    assert kolumn.read(made, columns=["offset"], include_control=True)["offset"].to_pylist() == sorted(log.offsets)


def test_segments_without_records_of_clients(tmp_path: Path) -> None:
    """Only the last one says something, which is where the log goes on."""
    log = redpanda.mixed(log_of(HERE / "v2-append-time" / "append-time-0"), {})
    end = len(log.offsets) + 1
    first = redpanda.own_batch(0)
    moved = redpanda.mixed(log_of(HERE / "v2-append-time" / "append-time-0"), {}, raw=1, delta=1)
    source = put(tmp_path / "0_7", first, moved.data, redpanda.own_batch(end))
    _, made = converted(source, tmp_path / "k")
    assert [path.name for path in sorted(made.glob("*.log"))] == [f"{0:020}.log", f"{end - 1:020}.log"]
    assert log_of(made) == log_of(HERE / "v2-append-time" / "append-time-0")


@pytest.mark.parametrize("format", ["v3-compact", "kip98-draft", "enriched"])
def test_logs_of_redpanda_become_drafts(tmp_path: Path, format: Any) -> None:
    log = redpanda.mixed(log_of(TRANSACTIONS), {0: (2,), 9: (2,)})
    source = put(tmp_path / "0_7", log.data)
    drop = format == "enriched"
    _, made = converted(source, tmp_path / "k", format=format, codec="gzip", drop_transactions=drop)
    found = kolumn.read(made, format=format, columns=["offset", "value"])
    every = kolumn.read(TRANSACTIONS, columns=["offset", "value", "transaction"])
    kept = every.filter(pc.is_in(every["transaction"], pa.array(["none", "committed"]))) if drop else every
    assert found.equals(kept.drop(["transaction"]))


def test_other_codecs_leave_batches_of_redpandas_own_as_they_are(tmp_path: Path) -> None:
    log = redpanda.mixed(log_of(TRANSACTIONS), {0: (2,), 3: (10, 36), 9: (7, 40)})
    source = put(tmp_path / "a" / "0_7", log.data)
    done = kolumn.convert(source, tmp_path / "b", source_format="redpanda", format="redpanda", codec="zstd")
    (path,) = map(Path, done.segments)
    assert is_sound(path)
    assert not done.lost
    before, after = (
        [data[at : at + size] for at, size, _, kind, _ in redpanda.headers(data) if kind != redpanda.DATA]
        for data in (log.data, path.read_bytes())
    )
    assert after == before
    assert len(before) == 5
    assert rows(path, "redpanda").equals(rows(source, "redpanda"))


def test_zeros_and_torn_ends_are_not_copied(tmp_path: Path) -> None:
    log = redpanda.mixed(log_of(TRANSACTIONS), {})
    for number, tail in enumerate((bytes(5000), log.data[:40], log.data[:100])):
        source = put(tmp_path / f"{number}_7", log.data + tail)
        done, made = converted(source, tmp_path / f"k{number}", errors="skip")
        assert log_of(made) == log_of(TRANSACTIONS)
        assert not done.damage


@pytest.mark.parametrize("where", [30, 70, 4, 17], ids=["header", "records", "size", "checksum"])
def test_damage(tmp_path: Path, where: int) -> None:
    log = redpanda.mixed(log_of(TRANSACTIONS), {0: (2,)})
    found = list(redpanda.headers(log.data))
    at, size, base, _, delta = found[20]
    wrong = bytearray(log.data)
    wrong[at + where] ^= 0xFF
    source = put(tmp_path / "0_7", bytes(wrong))
    raises(CorruptBatchError, f"position {at}", kolumn.convert, source, tmp_path / "k", source_format="redpanda")
    assert not (tmp_path / "k").exists()
    done, made = converted(source, tmp_path / "k", errors="skip")
    assert [(piece.position, piece.size) for piece in done.skipped.damage] == [(at, size)]
    lost = {log.offsets[base + i] for i in range(delta + 1)}
    kept = kolumn.read(TRANSACTIONS, columns=["offset", "value"], include_control=True)
    kept = kept.filter(pc.invert(pc.is_in(kept["offset"], pa.array(lost))))
    assert kolumn.read(made, columns=["offset", "value"], include_control=True).equals(kept)


def test_wrong_records_under_right_checksums_are_damage_on_the_way_too(tmp_path: Path) -> None:
    good, wrong = (bytearray(batch([Record(i, b"k", b"value", TIME)])) for i in range(2))
    wrong[61] = 0x7F
    wrong = bytearray(redpanda.of_kafka(bytes(wrong)))
    wrong[17:21] = struct.pack("<I", crc32c.crc32c(struct.pack(">hiqqqhii", *struct.unpack_from("<hiqqqhii", wrong, 21)) + wrong[61:]))
    data = redpanda.of_kafka(bytes(good)) + redpanda.sealed(bytes(wrong[4:61])) + bytes(wrong[61:])
    source = put(tmp_path / "0_7", data)
    raises(CorruptBatchError, "record", kolumn.convert, source, tmp_path / "k", source_format="redpanda")
    done, made = converted(source, tmp_path / "k", errors="skip")
    assert done.records == 1
    assert log_of(made) == redpanda.to_kafka(redpanda.of_kafka(bytes(good)), leader_epoch=0)


def test_folders_are_those_of_each_broker(tmp_path: Path) -> None:
    some = pa.table({"value": [b"v"] * 10})
    for name in ("orders-0", "orders-1", "pay-ments-0"):
        kolumn.write(some, tmp_path / "logs" / name)
    done = kolumn.convert(tmp_path / "logs", tmp_path / "data" / "kafka", format="redpanda")
    made = [str(Path(path).relative_to(tmp_path / "data" / "kafka")) for path in done.segments]
    assert made == ["orders/0_0/0-0-v1.log", "orders/1_0/0-0-v1.log", "pay-ments/0_0/0-0-v1.log"]
    raises(ArgumentError, "already exists", kolumn.convert, tmp_path / "logs", tmp_path / "data" / "kafka", format="redpanda")


def test_a_node_is_found_by_itself(tmp_path: Path) -> None:
    """Its log of several terms and segments comes back as it was."""
    source = HERE / "internal" / "__cluster_metadata-0"
    kolumn.convert(source, tmp_path / "data" / "kafka", format="redpanda")
    done = kolumn.convert(tmp_path / "data", tmp_path / "logs")
    assert {Path(path).parent for path in done.segments} == {tmp_path / "logs" / "__cluster_metadata-0"}
    assert b"".join(Path(path).read_bytes() for path in done.segments) == log_of(source)
    assert rows(tmp_path / "data").equals(rows(source))


def test_a_target_at_a_url(tmp_path: Path) -> None:
    kolumn.write(pa.table({"value": [b"v"] * 10, "leaderEpoch": [0] * 5 + [1] * 5}), tmp_path / "logs" / "orders-0")
    done = kolumn.convert(tmp_path / "logs", f"objects://{tmp_path}/bucket", format="redpanda")
    assert [path.rpartition("/bucket/")[2] for path in done.segments] == ["orders/0_0/0-0-v1.log", "orders/0_0/5-1-v1.log"]
    assert names(tmp_path / "bucket" / "orders" / "0_0") == ["0-0-v1.log", "5-1-v1.log"]


@pytest.mark.parametrize("given", [{"format": "redpanda"}, {}], ids=["told", "found"])
def test_an_erasure(tmp_path: Path, given: dict[str, Any]) -> None:
    """Batches of Redpanda's own stay byte for byte, and so do the names of segments."""
    log = redpanda.mixed(log_of(TRANSACTIONS), {0: (2,), 3: (10, 36), 9: (7, 40)})
    source = put(tmp_path / "0_7", log.data, term=3)
    every = kolumn.read(source, format="redpanda", columns=["offset", "key", "value"])
    key = next(key for key in every["key"].to_pylist() if key is not None)
    done = kolumn.erase(source, tmp_path / "new", keys=key, verify=True, **given)
    assert done.ok
    assert done.records
    (path,) = (path for path in (tmp_path / "new").rglob("*") if path.is_file())
    assert path.name == "0-3-v1.log"
    assert is_sound(path)
    expected = every.filter(pc.fill_null(pc.not_equal(every["key"], key), True))
    assert kolumn.read(path, format="redpanda", columns=["offset", "key", "value"]).equals(expected)
    own = [kind for *_, kind, _ in redpanda.headers(path.read_bytes()) if kind != redpanda.DATA]
    assert own == [2, 10, 36, 7, 40]


def test_what_is_not_done_to_logs_of_redpanda(tmp_path: Path) -> None:
    log = redpanda.mixed(log_of(TRANSACTIONS), {})
    source = put(tmp_path / "orders-0", log.data)
    what = "Convert the log to Kafka's format first: kolumn.convert"
    for given in ({"format": "redpanda"}, {}):
        raises(ArgumentError, what, kolumn.compact, source, tmp_path / "c", **given)
        raises(ArgumentError, what, kolumn.apply_retention, source, tmp_path / "c", retention_ms=1, **given)
    raises(ArgumentError, what, kolumn.recover, source, tmp_path / "c")
    raises(ArgumentError, what, kolumn.rebuild_index, source)
    raises(ArgumentError, "batches of format 2", kolumn.broker.assign_offsets, log.data, 0, format="redpanda")
    raises(ArgumentError, "batches of format 2", kolumn.broker.for_fetch, log.data, 2, format="redpanda")
    assert names(tmp_path) == ["orders-0"]


def test_messages_and_markers_become_batches(tmp_path: Path) -> None:
    source = tmp_path / "a.log"
    source.write_bytes(
        message(1, Record(0, b"k", b"v", TIME))
        + batch([Record(1, b"k", b"w", TIME)], flags=TRANSACTIONAL, producer_id=5)
        + control_batch(2, 1)
    )
    done = kolumn.convert(source, tmp_path / "b.log", format="redpanda")
    assert done.copied == 2
    assert is_sound(tmp_path / "b.log")
    assert rows(tmp_path / "b.log", "redpanda").equals(rows(source))


def test_a_table_gets_offsets_of_consumers(tmp_path: Path) -> None:
    """In runs between which the log grows, and loses its head, of which the table has all."""
    log = redpanda.mixed(log_of(TRANSACTIONS), {0: (2, 2), 9: (2,), 60: (19, 2)})
    cut = [at for at, *_ in redpanda.headers(log.data)]
    folder, table = tmp_path / "orders-0", tmp_path / "table"
    folder.mkdir()

    def run(start: int, stop: int | None, **options: Any) -> kolumn.Appended:
        base = struct.unpack_from("<q", log.data, start + 8)[0]
        (folder / f"{base:020}.log").write_bytes(log.data[start:stop])
        return kolumn.append(folder, table, format="redpanda", columns=["value"], include_control=False, **options)

    assert run(0, cut[30]).rows
    assert not run(cut[30], cut[80]).lost
    (folder / f"{0:020}.log").unlink()
    raises(ArgumentError, "start_delta", run, cut[80], None)
    # Two before its first batch of clients, and one more.
    assert not run(cut[80], None, start_delta=3).lost
    from deltalake import DeltaTable

    found = DeltaTable(table).to_pyarrow_table(columns=["offset", "value"]).sort_by("offset")
    every = kolumn.read(TRANSACTIONS, columns=["offset", "value"])
    assert found["offset"].to_pylist() == every["offset"].to_pylist()
    assert found["value"].to_pylist() == every["value"].to_pylist()


def test_a_table_does_not_go_on_by_records_without_offsets(tmp_path: Path) -> None:
    """Those at the end of a log would be left out by the run that finds them."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(redpanda.mixed(log_of(TRANSACTIONS), {9: (2,)}).data)
    asked = {"format": "redpanda", "include_control": True}
    raises(ArgumentError, "consumers have none for some of Redpanda's own", kolumn.append, folder, tmp_path / "table", **asked)


@pytest.mark.parametrize("name", ["txn-lz4", "txn-open"])
def test_the_state_of_a_topic(tmp_path: Path, name: str) -> None:
    """Also up to an open transaction, whose first offset is a raw one."""
    kafka = HERE / "transactional" / f"{name}-0"
    log = redpanda.mixed(log_of(kafka), {0: (2, 2), 9: (2,), 60: (19, 2)})
    (tmp_path / f"{name}-0").mkdir()
    (tmp_path / f"{name}-0" / f"{0:020}.log").write_bytes(log.data)
    for asked in ({}, {"as_of_offset": 300}):
        found, expected = (
            kolumn.latest(folder, columns=["offset", "key", "value"], **asked, **how)
            for folder, how in ((tmp_path / f"{name}-0", {"format": "redpanda"}), (kafka, {}))
        )
        assert found.equals(expected, check_metadata=True)
