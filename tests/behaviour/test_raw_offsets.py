"""Offsets of consumers in logs of Redpanda: raw offsets minus those that batches of its own have taken."""

import logging
import random
from dataclasses import replace
from pathlib import Path

import pytest

import kolumn
from kit.encoder import Record, batch
from kit.fuzz import FIRST as SEED
from kit.redpanda import FILTERED, HEADER, TX_FENCE, Mixed, mixed
from kolumn.copies.raw_offsets import RawOffsets
from kolumn.core.errors import ArgumentError
from kolumn.source.redpanda import Raft
from kolumn.source.segments import Range, find_segments

ASKED = {"format": "redpanda", "columns": ["offset", "rawOffset"]}


def log_of(counts: list[int]) -> bytes:
    """A segment of format 2: batches with so many records each."""
    parts, offset = [], 0
    for count in counts:
        parts.append(batch([Record(offset + i, b"k%d" % (offset + i), b"v" * 40, 1000 + offset + i) for i in range(count)]))
        offset += count
    return b"".join(parts)


def written(folder: Path, rng: random.Random, segments: int) -> dict[int, int]:
    """A log in some segments; its raw offsets with those of consumers."""
    folder.mkdir(parents=True)
    raw = delta = 0
    offsets: dict[int, int] = {}
    for _ in range(segments):
        counts = [rng.randint(1, 5) for _ in range(rng.randint(1, 30))]
        own = {i: tuple(rng.choice([*FILTERED, TX_FENCE, 9]) for _ in range(rng.randint(1, 3))) for i in range(30) if rng.random() < 0.3}
        made = mixed(log_of(counts), own, raw, delta)
        (folder / f"{raw:020}.log").write_bytes(made.data)
        offsets |= made.offsets
        raw, delta = made.end, made.delta
    return offsets


def read(source: object, **options: object) -> dict[int, int]:
    columns = kolumn.read(source, **ASKED, **options).to_pydict()
    return dict(zip(columns["rawOffset"], columns["offset"], strict=True))


def one(tmp_path: Path, made: Mixed, raw: int) -> Path:
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / f"{raw:020}.log"
    path.write_bytes(made.data)
    return path


@pytest.mark.parametrize("case", range(12))
def test_random_logs(tmp_path: Path, case: int) -> None:
    rng = random.Random(SEED + case)
    folder = tmp_path / "t-0"
    expected = written(folder, rng, rng.randint(1, 4))
    how = {"threads": rng.choice([1, 2]), "chunk_bytes": rng.choice([None, 300, 5000])}
    assert read(folder, **how) == expected
    known = sorted(expected.values())
    for _ in range(8):
        start, end = sorted((rng.randint(0, len(known) + 2), rng.randint(0, len(known) + 2)))
        asked = {raw: offset for raw, offset in expected.items() if start <= offset < end}
        assert read(folder, start_offset=start, end_offset=end, **how) == asked
        assert kolumn.read(folder, format="redpanda", columns=["key"], start_offset=start, end_offset=end).num_rows == len(asked)
    report = kolumn.verify(folder, format="redpanda")
    assert report.ok
    assert "raw-offsets" not in report.remarks["kind"].to_pylist()


def test_a_log_that_begins_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = mixed(log_of([2, 3]), {0: (2,), 1: (19, 2)}, 100, 7)
    path = one(tmp_path, made, 100)
    with caplog.at_level(logging.WARNING):
        assert read(path) == {raw: raw for raw in made.offsets}
    assert "name it in start_delta, for this log alone" in caplog.text
    (remark,) = [row for row in kolumn.verify(path, format="redpanda").remarks.to_pylist() if row["kind"] == "raw-offsets"]
    assert "not known where the log begins" in remark["remark"]
    caplog.clear()
    assert read(path, start_delta=7) == made.offsets
    assert not caplog.text
    assert read(path, start_delta=7, start_offset=95) == {raw: offset for raw, offset in made.offsets.items() if offset >= 95}


def test_a_folder_without_a_name_is_one_log(tmp_path: Path) -> None:
    first = mixed(log_of([2, 2]), {0: (2,), 1: (19,)})
    second = mixed(log_of([3]), {0: (2,)}, first.end, first.delta)
    for name, made in (("0-1-v1.log", first), (f"{first.end}-1-v1.log", second)):
        (tmp_path / name).write_bytes(made.data)
    assert read(tmp_path) == {**first.offsets, **second.offsets}
    assert not [row for row in kolumn.verify(tmp_path).remarks.to_pylist() if row["kind"] == "raw-offsets"]


def test_start_delta_is_of_one_log(tmp_path: Path) -> None:
    for partition in range(2):
        (tmp_path / f"t-{partition}").mkdir()
        (tmp_path / f"t-{partition}" / f"{50:020}.log").write_bytes(mixed(log_of([2]), {}, 50).data)
    with pytest.raises(ArgumentError, match=r"start_delta=3: expected one log that needs it, found 2 logs: read that log alone"):
        read(tmp_path, start_delta=3)
    assert read(tmp_path / "t-1", start_delta=3) == {50: 47, 51: 48}
    (tmp_path / "t-2").mkdir()
    (tmp_path / "t-2" / f"{0:020}.log").write_bytes(mixed(log_of([2]), {}).data)
    with pytest.raises(ArgumentError, match="found no log"):
        read(tmp_path / "t-2", start_delta=3)


def test_bounds_of_all_offsets_there_are(tmp_path: Path) -> None:
    most = 2**63 - 1
    made = mixed(log_of([2, 3]), {0: (2,), 1: (19, 2)})
    path = one(tmp_path, made, 0)
    assert read(path, end_offset=most) == read(path, start_offset=0, end_offset=most) == made.offsets
    assert read(path, start_offset=most) == {}


@pytest.mark.parametrize("delta", [-1, 101, 2**63 - 1, 2**64])
def test_a_start_delta_that_cannot_be(tmp_path: Path, delta: int) -> None:
    path = one(tmp_path, mixed(log_of([2]), {}, 100), 100)
    expected = "(0 to 100, the raw offset at which .* begins|a number of 64 bits)"
    with pytest.raises(ArgumentError, match=rf"start_delta={delta}: expected {expected}"):
        read(path, start_delta=delta)
    assert read(path, start_delta=100) == {100: 0, 101: 1}


def test_records_that_no_consumer_has(tmp_path: Path) -> None:
    made = mixed(log_of([2, 1]), {0: (2,), 1: (TX_FENCE, 19)})
    rows = kolumn.read(one(tmp_path, made, 0), **ASKED, include_control=True).to_pylist()
    assert [(row["rawOffset"], row["offset"]) for row in rows] == [(0, None), (1, 0), (2, 1), (3, 2), (4, None), (5, 3)]


def test_damage(tmp_path: Path) -> None:
    """A damaged batch whose header is right counts by its type; one that is lost leaves a doubt, which is told."""
    made = mixed(log_of([2, 2, 2]), {1: (2,)})
    path = one(tmp_path, made, 0)
    data = bytearray(made.data)
    own = data.index(b"own")
    data[own] ^= 1
    path.write_bytes(data)
    assert read(path, errors="skip") == made.offsets
    start = own - HEADER - 6
    while data[start : start + 4] != made.data[start : start + 4] or data[start + 16] != 2:
        start -= 1
    data[start + 40] ^= 1
    path.write_bytes(data)
    report = kolumn.verify(path, format="redpanda")
    assert report.damage.num_rows == 1
    (remark,) = [row for row in report.remarks.to_pylist() if row["kind"] == "raw-offsets"]
    assert "1 raw offset is absent" in remark["remark"]


def test_a_batch_that_is_lost_at_the_beginning_of_a_segment(tmp_path: Path) -> None:
    made = mixed(log_of([2, 2]), {0: (2,)})
    data = bytearray(made.data)
    data[40] ^= 1
    path = one(tmp_path, replace(made, data=bytes(data)), 0)
    (remark,) = [row for row in kolumn.verify(path, format="redpanda").remarks.to_pylist() if row["kind"] == "raw-offsets"]
    assert "1 raw offset is absent" in remark["remark"]
    first = path.rename(path.with_name(f"{9:020}.log"))
    first.write_bytes(mixed(log_of([2, 2]), {0: (2,)}, 9).data)
    remarks = kolumn.verify(first, format="redpanda", start_delta=3).remarks
    assert "raw-offsets" not in remarks["kind"].to_pylist()


def test_manifests(tmp_path: Path) -> None:
    """What a manifest says of a segment counts, and is compared with its batches."""
    rng = random.Random(SEED)
    expected = written(tmp_path / "t-0", rng, 3)
    first, middle, last = find_segments(tmp_path / "t-0")
    by_raw = dict(sorted(expected.items()))

    def delta(raw: int) -> int:
        return next(at - offset for at, offset in by_raw.items() if at >= raw)

    for segment in (middle, last):
        told = replace(segment, format="redpanda", raft=Raft(1, delta=delta(segment.base_offset) + 5, delta_end=1))
        part = Range.whole(told)
        offsets = RawOffsets([Range.whole(replace(first, format="redpanda")), part], None)
        assert offsets.before(part) == told.raft.delta
        assert offsets.learn(part, 3) == (
            "after its last batch raw offsets are 3 above consumer offsets by its batches, and 1 by the manifest"
        )  # fmt: skip


def test_history(tmp_path: Path) -> None:
    """Records that are decoded after their range is done have the offsets of where they are."""
    folder = tmp_path / "t-0"
    expected = written(folder, random.Random(SEED), 2)
    table = kolumn.read(folder, **(ASKED | {"columns": ["key", "offset"]})).to_pylist()
    last = table[-1]
    found = kolumn.history(folder, key=last["key"], format="redpanda")
    assert found["offset"].to_pylist() == [row["offset"] for row in table if row["key"] == last["key"]]
    assert last["offset"] == expected[max(expected)]
