"""Strangers' logs that are merged, recovered, converted or compacted: what the result holds, and what is reported."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kolumn.core.errors import ArgumentError
from kolumn.writers import write

Disk = Callable[[str], Path]
LIMIT, RECORDS = 32 << 20, 80
SPANS = {"v2": 11, "v1": 11, "v0": 10, "one-segment": 10, "top": 10, "thousand": 2000}
"""Records of logs whose offsets span more than an index of one segment holds."""
COLUMNS = ["offset", "key", "value", "timestampMs"]
OVERLAPS = {
    # What is in the result, and how many records of the other leader are reported.
    "epoch-aligned": (range(30), 10), "epoch-straddle": (range(35), 5), "epoch-straddle-long": (range(25), 15),
    "epoch-lower": (range(20), 20), "one-past": (range(29), 1), "single-batches": (range(35), 5), "same": (range(30), 0),
    "same-straddle": (range(35), 0),
}  # fmt: skip
BACK = {
    "dup": (range(30), 0), "overlap": (range(45), 15), "back": (range(30), 0), "jumpback": ([*range(50, 60), *range(100, 130)], 0),
    "seg": (range(35), 5),
}  # fmt: skip
SUCCESSOR = {"s255": (8, 15), "s101": (17, 20), "s272": (35, 46)}
"""The offset with which the successor of an unclean election began, and the one after its last record."""


def superseded(done: kolumn.Recovery, records: int) -> None:
    """Whether so many records of another leader are reported, and nothing else."""
    assert {row["kind"] for row in done.lost.to_pylist()} == ({"superseded"} if records else set())
    assert sum(done.lost["recordsLost"].to_pylist()) == records


def offsets(table: pa.Table) -> list[int]:
    found: list[int] = table["offset"].to_pylist()
    return found


@pytest.mark.parametrize("name", OVERLAPS)
def test_segments_that_overlap(name: str, disk: Disk, tmp_path: Path) -> None:
    """Leader epochs decide, a batch across the border is cut, and what is left out is reported."""
    right, lost = OVERLAPS[name]
    done = kolumn.recover(disk("overlapping-segments") / f"{name}-0", tmp_path / "out")
    found = kolumn.read(tmp_path / "out", columns=["offset", "leaderEpoch"])
    epochs = found["leaderEpoch"].to_pylist()
    assert (offsets(found), epochs, done.lost.num_rows) == (list(right), sorted(epochs), lost > 0)
    superseded(done, lost)
    assert kolumn.verify(tmp_path / "out").ok


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", BACK)
def test_offsets_that_go_back_within_a_file(name: str, version: str, disk: Disk, tmp_path: Path) -> None:
    """Each is kept once, that which was written later."""
    right, lost = BACK[name]
    done = kolumn.recover(disk("nonmonotonic-offsets") / f"{version}_{name}-0", tmp_path / "out")
    found = kolumn.read(tmp_path / "out", columns=["offset", "value"])
    assert (offsets(found), done.ok) == (list(right), True)
    superseded(done, lost)
    assert not lost or found["value"][15].as_py() == b"b15"


@pytest.mark.parametrize(("name", "lost"), [("u3", 51), ("u6", 81), ("u7", 51)])
def test_a_tier_with_segments_of_a_leader_that_lost_an_election(name: str, lost: int, disk: Disk, tmp_path: Path) -> None:
    """The headers of batches tell which, where no file does."""
    (source,) = disk("tier-unclean-leader").glob(f"{name}-*")
    right = [*((offset, 0) for offset in range(51)), *((offset, 2) for offset in range(51, 123))]

    def rows(where: Path, **options: Any) -> list[tuple[int, int]]:
        found = kolumn.read(where, columns=["offset", "leaderEpoch"], **options)
        return list(zip(offsets(found), found["leaderEpoch"].to_pylist(), strict=True))

    done = kolumn.recover(source, tmp_path / "out")
    assert rows(source) == rows(source, replicas="merge") == rows(tmp_path / "out") == right
    superseded(done, lost)


@pytest.mark.parametrize("name", SUCCESSOR)
@pytest.mark.parametrize("order", [1, -1])
def test_damage_near_an_unclean_election(name: str, order: int, disk: Disk, tmp_path: Path) -> None:
    """No record of the leader that lost it comes back, and each that is intact is reported."""
    root, (first, end) = disk("merge-after-election"), SUCCESSOR[name]
    copies = [root / name / "b1" / "t-0", root / name / "b2" / "t-0"][::order]
    columns = ["offset", "leaderEpoch", "value"]
    found = kolumn.read(copies, replicas="merge", errors="skip", columns=columns).to_pylist()
    values = [(row["offset"], row["value"]) for row in found]
    assert not [row for row in values if row[1].startswith(b"lost")]
    assert {offset for offset, value in values if value.startswith(b"new")} <= set(range(first, end))
    assert all(one["leaderEpoch"] <= other["leaderEpoch"] for one, other in itertools.pairwise(found))
    alone = [row for copy in copies for row in kolumn.read(copy, errors="skip", columns=["offset", "value"]).to_pylist()]
    intact = {(row["offset"], row["value"]) for row in alone}
    # What the log has and any copy has intact is there; what no copy may add is reported, record by record.
    log = {row for row in intact if not row[1].startswith(b"lost")}
    assert set(values) == log
    done = kolumn.recover(copies, tmp_path / "out")
    assert sum(row["recordsLost"] for row in done.lost.to_pylist() if row["kind"] == "superseded") == len(intact) - len(log) > 0
    assert kolumn.read(tmp_path / "out", columns=columns).to_pylist() == found


@pytest.mark.parametrize(("one", "other"), [("disk1", "disk2"), ("disk1", "disk3"), ("disk4", "disk5"), ("disk6", "disk4")])
def test_topics_of_one_name_with_other_ids_are_no_copies(one: str, other: str, disk: Disk, tmp_path: Path) -> None:
    """Whatever their leader epochs say."""
    root = disk("recreated-topic")
    sources, said = [root / one, root / other], r"two topics of the same name, with the ids A{21}[Qg] and A{21}[Qg] in partition\.metadata"
    for function, given in ((kolumn.read, {"replicas": "merge"}), (kolumn.read, {}), (kolumn.recover, {"target": tmp_path / "out"})):
        with pytest.raises(kolumn.ArgumentError, match=said):
            function(sources, **given)
    assert not (tmp_path / "out").exists()
    # Copies of the new topic.
    values = [b"new%d" % i for i in range(30)]
    assert kolumn.read([root / "disk6", root / "disk5"], replicas="merge", columns=["value"])["value"].to_pylist() == values
    assert kolumn.recover([root / "disk5", root / "disk6"], tmp_path / "out").ok
    assert kolumn.read(tmp_path / "out", columns=["value"])["value"].to_pylist() == values


def check(folder: Path, made: list[str]) -> None:
    """Whether segments have the offsets that their names and indexes allow."""
    assert sorted(made) == sorted(str(one) for one in folder.glob("*.log"))
    batches = kolumn.batches(folder)
    for one in folder.glob("*.log"):
        own = batches.filter(pc.equal(batches["segment"], str(one)))
        assert own.num_rows
        assert int(one.stem) <= pc.min(own["baseOffset"]).as_py()
        assert pc.max(own["lastOffset"]).as_py() - int(one.stem) < 2**31
    assert kolumn.verify(folder).ok


@pytest.mark.parametrize("topic", SPANS)
def test_offsets_that_span_more_than_an_index_holds(disk: Disk, tmp_path: Path, topic: str) -> None:
    """What rewrites them goes on in other segments; what `verify` calls intact is in what `recover` writes."""
    source, target = disk("offset-overflow") / f"{topic}-0", tmp_path / "recovered"
    expected = kolumn.read(source, columns=COLUMNS)
    assert (expected.num_rows, kolumn.verify(source).ok) == (SPANS[topic], True)
    recovery = kolumn.recover(source, target)
    assert (recovery.ok, recovery.lost.num_rows, kolumn.read(target, columns=COLUMNS).equals(expected)) == (True, 0, True)
    for log in (target / source.name).glob("*.log"):
        assert max(offsets(kolumn.read(log, columns=["offset"]))) - int(log.stem) < 2**31
    if topic == "thousand":
        return
    source = disk("offset-overflow-rewrite") / f"{topic}-0"
    expected = kolumn.read(source, columns=COLUMNS)
    for codec in ("none", "gzip"):
        done = kolumn.convert(source, tmp_path / codec, codec=codec)
        found = kolumn.read(tmp_path / codec, columns=COLUMNS[:3])
        assert (done.records, found.equals(expected.select(COLUMNS[:3]))) == (SPANS[topic], True)
        check(tmp_path / codec / source.name, done.segments)
        assert (len(done.segments) == 1) == (topic == "top")
    last = dict(zip(expected["key"].to_pylist(), offsets(expected), strict=True))
    for include_active in (False, True):
        compacted = kolumn.compact(source, tmp_path / f"{include_active}", include_active=include_active)
        kept = offsets(kolumn.read(tmp_path / f"{include_active}", columns=["offset"]))
        assert {*last.values()} <= {*kept}
        if include_active:
            assert sorted(last.values()) == kept
            check(tmp_path / "True" / source.name, compacted.segments)


def test_clean_cuts_inside_of_such_a_segment(disk: Disk, tmp_path: Path) -> None:
    folder = disk("offset-overflow-rewrite") / "v2-0"
    source = kolumn.read(folder, columns=["offset", "timestampMs"])
    now = source["timestampMs"][2].as_py()
    done = kolumn.apply_retention(folder, tmp_path / "new", format="kafka", retention_ms=0, now=now)
    assert (len(done.cut), offsets(kolumn.read(tmp_path / "new", columns=["offset"]))) == (1, offsets(source)[2:])
    check(tmp_path / "new" / "v2-0", done.segments)


def rolled(folder: Path, made: list[str]) -> list[Path]:
    """Three segments within the limit."""
    written = sorted(folder.glob("*.log"))
    assert (sorted(made), len(written)) == ([str(one) for one in written], 3)
    assert max(one.stat().st_size for one in written) <= LIMIT
    assert kolumn.verify(folder).ok
    return written


def test_a_segment_that_grows_past_what_a_segment_can_hold(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on in others when it is converted or compacted. A batch has 10 MiB without its codec, so three of them fit."""
    source = disk("convert-over-2gib") / "big-0"
    first, new, columns = source / f"{0:020}.log", tmp_path / "new" / "big-0", ["offset", "key", "value", "timestampMs"]
    # Its end is where a copy was cut, so no segment follows it.
    (source / f"{2200:020}.log").unlink()
    ends = kolumn.batches(first).select(["position", "size"]).slice(7, 1).to_pylist()[0]
    first.write_bytes(first.read_bytes()[: ends["position"] + ends["size"]])
    monkeypatch.setattr(write, "_LARGEST_RELATIVE", LIMIT)
    done = kolumn.convert(source, tmp_path / "new", codec="none")
    assert done.records == RECORDS
    batches = kolumn.batches(new)
    for one in rolled(new, done.segments):
        assert pc.min(batches.filter(pc.equal(batches["segment"], str(one)))["baseOffset"]).as_py() == int(one.stem)
        assert (one.with_suffix(".index").exists(), one.with_suffix(".timeindex").exists()) == (True, True)
    assert kolumn.read(new, columns=columns).equals(kolumn.read(source, columns=columns))
    # One file says what helps.
    with pytest.raises(ArgumentError, match="more than a segment can hold: name a folder, in which segments are rolled"):
        kolumn.convert(first, tmp_path / "one.log", codec="none")
    assert not (tmp_path / "one.log").exists()
    assert len(kolumn.convert(first, tmp_path / "folder", codec="none").segments) == 3
    # Format 2 without a codec, more of it than a segment may have now.
    data, whole = b"".join(one.read_bytes() for one in sorted(new.glob("*.log"))), tmp_path / "whole" / "big-0"
    whole.mkdir(parents=True)
    (whole / first.name).write_bytes(data)
    compacted = kolumn.compact(whole, tmp_path / "compacted", include_active=True)
    written = rolled(tmp_path / "compacted" / "big-0", compacted.segments)
    assert (compacted.retained, b"".join(one.read_bytes() for one in written)) == (RECORDS, data)
