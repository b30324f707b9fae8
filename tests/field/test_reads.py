"""Strangers' logs that are read: which records there are, and what is said of the others."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.command_line import run
from kit.lying_headers import WAYS, Asked
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Range
from kolumn.spark_plugin.connector.statistics import COUNT, NEWEST, totals_of

Disk = Callable[[str], Path]
UNUSUAL = ("bad-utf8-header-key", "neg-key-len", "offset-delta-dup", "record-attr")
"""Topics whose odd record is readable."""
WRONG = {
    "key-over-end": "key length", "longer-than-fields": "record length", "many-headers": "header count", "neg-headers": "header count",
    "null-header-key": "header key length", "offset-delta-wrong": "offset delta", "varint-6-bytes": "timestamp delta",
}  # fmt: skip
START = 1_700_000_000_000
TIMES = [START + late for late in (0, 5000, 1000, 9000, 500, 9500)]
TOPICS = ["go-zero", "long-max", "long-min", "micros", "minus-two", "nanos", "none", "one-micro", "one-nano", "year-0", "year-10000"]
NO_TIME = {"long-max": 1, "long-min": 1, "nanos": 50, "none": 50, "one-nano": 1}
"""Records whose time no column of timestamps has."""
PLACES = {
    "dup": ("19 is followed by 10", 10, 40), "overlap": ("29 is followed by 15", 15, 60), "back": ("19 is followed by 0", 20, 50),
    "jumpback": ("119 is followed by 50", 10, 40), "seg": ("19 is followed by 15", None, 40),
}  # fmt: skip
ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "options", [{}, {"binary": "view"}, {"threads": 2, "chunk_bytes": 300}, {"columns": ["offset", "headers"]}], ids=str
)
def test_one_bad_record_costs_one_record(disk: Disk, options: dict[str, Any]) -> None:
    root = disk("bad-record-in-good-batch")
    for codec in ("plain", "gzip"):
        for name in UNUSUAL:
            skipped = kolumn.Skipped()
            assert kolumn.read(root / f"{name}_{codec}-0", errors="skip", on_damage=skipped, **options).num_rows == 30
            assert not skipped.damage
        for name, field in WRONG.items():
            folder, skipped = root / f"{name}_{codec}-0", kolumn.Skipped()
            table = kolumn.read(folder, errors="skip", on_damage=skipped, **options)
            assert table["offset"].to_pylist() == [*range(15), *range(16, 30)], folder.name
            (damage,) = skipped.damage
            assert (damage.position, damage.records_lost, damage.base_offset, damage.last_offset) == (750, 1, 15, 15), folder.name
            assert damage.reason.startswith(f"record 5: {field}: expected "), damage.reason
            assert str(skipped).endswith("bytes, 1 record")
            with pytest.raises(kolumn.CorruptBatchError, match=f"base offset 10, record 5: {field}: expected"):
                kolumn.read(folder, **options)


def test_verify_and_recover_count_one_bad_record(disk: Disk, tmp_path: Path) -> None:
    folder = disk("bad-record-in-good-batch") / "neg-headers_plain-0"
    report = kolumn.verify(folder)
    assert (report.records, report.batches, report.damage["recordsLost"].to_pylist()) == (29, 20, [1])
    done = kolumn.recover(folder, tmp_path / "out")
    (lost,) = done.lost.to_pylist()
    assert (lost["kind"], lost["firstOffset"], lost["lastOffset"], lost["recordsLost"]) == ("unreadable", 15, 15, 1)
    assert done.partitions["records"].to_pylist() == [29]


def test_a_cleaned_file_of_any_kind_says_that_a_swap_is_not_finished(disk: Disk) -> None:
    """The records are those that a broker loads."""
    root = disk("cleaned-swap")
    for name, first in (("a", 0), ("b", 0), ("c", 0), ("d", 0), ("e", 9)):
        assert kolumn.read(root / name / "t-0", columns=["offset"])["offset"].to_pylist() == list(range(first, 13)), name


def test_a_batch_over_the_limit_is_no_damage(disk: Disk, tmp_path: Path) -> None:
    """What is said of it leads to its records."""
    root, name = disk("highly-compressible"), f"{0:020d}.log"
    report = kolumn.verify(root / "zstd-0")
    assert (report.damage.num_rows, report.limits["recordsLost"].to_pylist()) == (0, [200])
    assert kolumn.read(root / "zstd-0", columns="offset", **report.suffices).num_rows == 200
    report = kolumn.verify(root / "gzip-0")
    assert (report.ok, report.records) == (True, 200)
    done = kolumn.recover(root / "zstd-0", tmp_path / "out")
    assert (done.ok, done.lost["kind"].to_pylist(), done.partitions["records"].to_pylist()) == (True, ["limit"], [200])
    assert (tmp_path / "out" / "zstd-0" / name).read_bytes() == (root / "zstd-0" / name).read_bytes()


def in_range(low: int | None, high: int | None) -> list[int]:
    return [i for i, time in enumerate(TIMES) if (low is None or time >= START + low) and (high is None or time < START + high)]


@pytest.mark.parametrize(("low", "high"), [(5000, None), (9000, None), (500, 5001), (None, 1000), (9501, None)])
def test_ranges_where_the_largest_timestamp_is_unset_or_too_low(disk: Disk, low: int | None, high: int | None) -> None:
    root, asked = disk("max-timestamp-unset"), Asked(None, None, *(late if late is None else START + late for late in (low, high)))
    # SQL names topics, and this log has none.
    found = {name: [row[2] for row in way(root, asked, {})] for name, way in WAYS.items() if name != "SQL"}
    assert found == dict.fromkeys(found, in_range(low, high))


def test_an_unset_largest_timestamp_is_no_total(disk: Disk) -> None:
    """Of the second batch alone."""
    options = Options.of()
    (segment,) = live_segments(disk("max-timestamp-unset"), options).one_log()
    totals = totals_of(Range(segment, 80, 160), options, frozenset({COUNT, NEWEST}))
    assert (totals.count, totals.newest_ms) == (2, TIMES[3])


def test_what_is_left_out_is_named_with_its_records(disk: Disk) -> None:
    root = disk("stray-folders")
    report = kolumn.verify(root)
    assert (report.ok, report.records) == (True, 5)
    left_out = report.left_out.to_pylist()
    assert {(Path(one["path"]).relative_to(root).as_posix(), one["kind"], one["files"], one["records"]) for one in left_out} == {
        (f"orders-0.{ID}-stray", "stray", 1, 100), (f"orders-1.{ID}-delete", "deleted", 1, 50), (f"orders-2.{ID}-future", "future", 1, 70),
        ("orders-0/00000000000000000005.log.deleted", "deleted", 2, 7),
    }  # fmt: skip
    for one in left_out:
        assert kolumn.read(one["path"], columns=["offset"]).num_rows == one["records"]


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("case", PLACES)
def test_offsets_that_go_back(case: str, magic: int, disk: Disk) -> None:
    """All records are returned, and `verify` names the place without calling it damage."""
    words, repeated, records = PLACES[case]
    folder = disk("nonmonotonic-offsets") / f"v{magic}_{case}-0"
    report = kolumn.verify(folder)
    assert (report.ok, report.records, kolumn.read(folder).num_rows) == (True, records, records)
    [text] = [one["remark"] for one in report.remarks.to_pylist() if one["kind"] == "offsets-back"]
    assert words in text
    assert repeated is None or f"; {repeated} records have an offset that is not above all before" in text


def printed(*args: object) -> str:
    done = run(*args)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def test_timestamps_in_other_units_and_far_from_now(disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each row is there, nothing ends in a traceback, and what does not fit is null and said."""
    root = disk("timestamps-far")
    for topic in TOPICS:
        found = kolumn.read(root / f"{topic}-0", columns=["value", "timestampMs"])
        assert (found["timestampMs"].to_pylist(), found.num_rows) == ([int(value) for value in found["value"].to_pylist()], 50)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "kolumn"):
        found = kolumn.read(root, columns=["topic", "timestamp", "timestampMs"])
    counts = found.filter(found["timestamp"].is_null())["topic"].value_counts().to_pylist()
    assert counts == [{"values": topic, "counts": count} for topic, count in NO_TIME.items()]
    said = [one.getMessage() for one in caplog.records]
    for topic, number in (("long-max", 2**63 - 1), ("nanos", 1774000000123000000), ("one-nano", 1774000000123000000)):
        assert [one for one in said if f"/{topic}-0/" in one and f"the timestamp {number} does not fit" in one]
    assert len(said) == 3
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    pytest.importorskip("matplotlib", reason="kolumn[report] has it")
    shown = {"micros": "+58185-10-27T09:48:43.000Z", "one-micro": "2026-03-20T09:46:40.123Z", "long-max": "2026-03-20T09:46:40.123Z"}
    for topic in TOPICS:
        lines = printed("sql", root / f"{topic}-0", f'select * from "{topic}" order by "offset"').splitlines()
        assert len(lines) == 51
        assert topic not in shown or f"  {shown[topic]}  " in lines[1]
    for source in [*(root / f"{topic}-0" for topic in TOPICS), root]:
        printed("report", source, "-o", tmp_path / "report.html")
