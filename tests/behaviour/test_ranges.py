"""A read of a range of offsets or times returns what a read of all does, filtered; so does one from the log start offset on.

`tests/fuzz/test_range_mutants.py` asks the same of logs by the hundred.
"""

import os
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import kolumn
from kit.asked import invoked, offsets, put
from kit.corpus import HERE
from kit.counted import IO, counted
from kit.encoder import LOG_APPEND_TIME, Record, batch
from kit.outcome import raises
from kit.replicas import copy, flip
from kit.tiers import tier_of
from kolumn.log import seek

START = 1_700_000_000_000


def large(offset: int) -> bytes:
    """A batch of 16 KiB with 4 records."""
    return batch([Record(offset + i, b"k", bytes(4096), START + offset + i) for i in range(4)])


def test_the_last_batch_has_offsets_of_the_range(tmp_path: Path) -> None:
    """It was appended late, or its base offset is wrong."""
    path = put(tmp_path, *(large(4 * i) for i in range(150)), batch([Record(offset, b"k", b"", START + offset) for offset in (6, 7)]))
    for low, high in ((None, 8), (4, 8), (6, 400)):
        assert offsets(path, start_offset=low, end_offset=high) == [*range(low or 0, high), 6, 7]


@pytest.mark.skipif(not IO.exists(), reason="this system does not count what a process reads")
def test_headers_are_read_a_bounded_way_beyond_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, *(large(4 * i) for i in range(1000)))
    reads = []
    for beyond in (seek.BEYOND, path.stat().st_size):
        monkeypatch.setattr(seek, "BEYOND", beyond)
        found, size, count, _ = counted(lambda: offsets(path, end_offset=8))
        assert found == list(range(8))
        assert size < path.stat().st_size / 10
        reads.append(count)
    assert reads[0] < 600 < 1000 < reads[1]


def index_files(path: Path, positions: list[tuple[int, int]], times: list[tuple[int, int]]) -> None:
    for suffix, form, entries in ((".index", ">ii", positions), (".timeindex", ">qi", times)):
        path.with_suffix(suffix).write_bytes(b"".join(struct.pack(form, *entry) for entry in entries))


def test_an_index_hides_nothing(tmp_path: Path) -> None:
    """The log confirms the index, and before the place that it names are larger offsets and later times."""
    parts = [((50, 51), 1), ((10, 11), 2), ((12, 13), None)]
    entries = [batch([Record(at, b"k", b"", START + at) for at in both], max_timestamp=newest) for both, newest in parts]
    path = put(tmp_path, *entries)
    index_files(path, [(11, len(entries[0])), (13, len(entries[0] + entries[1]))], [(2, 11)])
    assert offsets(path, start_offset=12, errors="skip") == [50, 51, 12, 13]
    assert offsets(path, start_timestamp=START + 12, errors="skip") == [50, 51, 12, 13]
    # Two batches of a large segment were appended in the other order.
    entries = [large(4 * i) for i in range(120)]
    path, each = put(tmp_path, *entries[:100], entries[101], entries[100], *entries[102:]), len(entries[0])
    index_files(path, [(4 * i + 3, each * number) for i, number in ((50, 50), (80, 80), (100, 101), (110, 110))], [])
    assert offsets(path, start_offset=404) == [404, 405, 406, 407, *range(408, 480)]
    unset = [batch([Record(4 * i + k, b"k", bytes(4096), START + i) for k in range(4)], max_timestamp=-1) for i in range(150)]
    path = put(tmp_path, *unset)
    index_files(path, [(4 * i + 3, len(unset[0]) * i) for i in (40, 80, 120)], [(-1, 4 * 80 + 3)])
    assert offsets(path, start_timestamp=START) == list(range(600))


EACH, COUNT = 8, 300


def segment(rng: random.Random, kind: str) -> bytes:
    """Batches whose times grow, or nearly grow, or do not."""
    data = []
    for number in range(COUNT):
        base = number * EACH
        spread = {"jitter": 50, "none": 3000, "mixed": 20}.get(kind)
        late = rng.randrange(-spread, spread) if spread else 0
        times = [START + base + i + (late if rng.random() < 0.5 else 0) for i in range(EACH)]
        records = [Record(base + i, b"k%d" % i, rng.randbytes(60), times[i]) for i in range(EACH)]
        append = kind == "append" or (kind == "mixed" and number % 100 < 40)
        data.append(batch(records, flags=LOG_APPEND_TIME if append else 0, codec=rng.choice((0, 3))))
    return b"".join(data)


@pytest.mark.parametrize("kind", ["ordered", "jitter", "none", "append", "mixed"])
def test_rows_of_a_range(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(kind)
    path = put(tmp_path, segment(rng, kind))
    columns = ["offset", "timestampMs", "value"]
    whole = kolumn.read(path, columns=columns)
    monkeypatch.setattr(seek, "SMALLEST", 1)
    last = START + COUNT * EACH
    ranges: list[tuple[int | None, int | None]] = [(START - 10, START), (last + 5000, last + 6000), (START, last), (None, START + 40)]
    ranges += [(last - 9, None), *((low := rng.randrange(START, last), low + rng.choice((1, 100, 1000))) for _ in range(12))]
    ranges += [(low := rng.randrange(START, last), low + rng.choice((1, 100, 1000))) for _ in range(12)]
    time, offset = pc.field("timestampMs"), pc.field("offset")
    for begin, end in ranges:
        expected = whole.filter((time >= (begin or 0)) & (time < (end or 2**62)))
        part = expected.filter((offset >= 500) & (offset < 2000))
        for more in ({}, {"threads": 3, "chunk_bytes": 20_000}, {"start_offset": 500, "end_offset": 2000}):
            asked: dict[str, Any] = {"start_timestamp": begin, "end_timestamp": end, **more}
            assert kolumn.read(path, columns=columns, **asked).equals(part if "start_offset" in more else expected), asked


def test_bytes_that_are_read_and_damage_that_ends_the_shortcut(tmp_path: Path) -> None:
    rng = random.Random(1)
    batches = [
        batch([Record(at * 10 + i, b"k", rng.randbytes(1600), START + at) for i in range(10)], flags=LOG_APPEND_TIME) for at in range(200)
    ]
    path = put(tmp_path, *batches)
    found, size, _, _ = counted(lambda: kolumn.read(path, threads=1, start_timestamp=START + 100, end_timestamp=START + 102))
    assert len(found) == 20
    assert size < 0.1 * path.stat().st_size
    # It is in front of the first batch of the range.
    flip(path, sum(map(len, batches[:150])) - 1)
    raises(kolumn.CorruptBatchError, "checksum", kolumn.read, path, start_timestamp=START + 150)
    assert len(kolumn.read(path, start_timestamp=START + 151)) == 490


LOG = HERE / "delete-records" / "delete-records-0"
"""1500 records in segments from 0, 533 and 1115; its broker's log start offset was 777."""
NAME = "log-start-offset-checkpoint"
LINE = "0\n1\ndelete-records 0 "


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    copy(LOG, tmp_path / "disk")
    (tmp_path / "disk" / NAME).write_text("0\n2\ndelete-records 0 777\nother 3 5\n")
    return tmp_path / "disk"


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"errors": "skip"}, {"isolation_level": "read_committed"}, {"binary": "view"}])
def test_a_read_begins_there_if_asked_to(disk: Path, options: dict[str, Any]) -> None:
    for source in (disk, disk / LOG.name, f"{disk}/*-0", f"local://{disk}"):
        assert offsets(source, include_deleted_records=False, **options) == list(range(777, 1500))
        assert offsets(source, **options) == offsets(source, include_deleted_records=True, **options) == list(range(1500))
    options["include_deleted_records"] = False
    assert offsets(disk, start_offset=700, end_offset=800, **options) == list(range(777, 800))
    assert offsets(disk, end_offset=600, **options) == []
    assert offsets(disk, start_offset=1200, **options) == list(range(1200, 1500))


def test_everything_is_verified_listed_recovered_and_printed(disk: Path, tmp_path: Path) -> None:
    assert kolumn.verify(disk).records == 1500
    assert sum(kolumn.batches(disk)["count"].to_pylist()) == 1500
    assert kolumn.recover(disk, tmp_path / "made").partitions["records"].to_pylist() == [1500]
    for more, count in (([], 1500), (["--no-include-deleted-records"], 723)):
        done = invoked("cat", disk, "--json", "--columns", "offset", *more)
        assert (done.exit_code, len(done.stdout.splitlines())) == (0, count)
    (disk / NAME).write_text(f"{LINE}1500\n")
    assert offsets(disk, include_deleted_records=False) == []


@pytest.mark.parametrize(
    "text",
    [
        "", "0\n", "1\n1\ndelete-records 0 777\n", "0\n2\ndelete-records 0 777\n", f"{LINE}-1\n", f"{LINE}x\n", f"{LINE}777 1\n",
        "0\n1\ndelete-records 1 777\n", "0\n1\ndelete 0 777\n", f"{LINE}0\n", f"{LINE}1501\n", f"{LINE}9223372036854775807\n",
        "\xff\n1\ndelete-records 0 777\n",
    ],
)  # fmt: skip
def test_what_is_not_sure_leaves_nothing_out(disk: Path, text: str) -> None:
    """A line of another partition, a malformed file, and an offset after the end, with which a broker would delete the log."""
    (disk / NAME).write_text(text, encoding="latin-1")
    assert offsets(disk, include_deleted_records=False) == list(range(1500))


def test_other_names_and_other_folders(disk: Path, tmp_path: Path) -> None:
    """The line is about a folder of its name beside it, not about files elsewhere."""
    (disk / LOG.name).rename(disk / "backup")
    assert offsets(disk / "backup", topic="delete-records", partition=0, include_deleted_records=False) == list(range(1500))
    (disk / "backup").rename(disk / LOG.name)
    copy(LOG, tmp_path / "other")
    both = [disk, tmp_path / "other"]
    for replicas in ("first", "merge"):
        assert len(offsets(both, replicas=replicas, include_deleted_records=False)) == 1500
    (tmp_path / "other" / NAME).write_text(f"{LINE}600\n")
    assert offsets(both, replicas="merge", include_deleted_records=False) == list(range(600, 1500))


def test_a_tier_begins_there_too(disk: Path, tmp_path: Path) -> None:
    """Copies whose deletion was not finished are orphans: the broker's log start offset is that of the whole log."""
    log, tier = disk / LOG.name, tier_of(LOG, tmp_path / "tier").parent
    for path in sorted(log.iterdir()):
        if path.stem.isdigit() and int(path.stem) < 1115:
            path.unlink()
    assert offsets(log) == list(range(1115, 1500))
    assert offsets([tier, log]) == offsets([tier, log], include_deleted_records=False) == list(range(777, 1500))
    assert offsets([tier, log], include_deleted_records=True) == list(range(1500))
    assert offsets(tier) == list(range(1115))


@pytest.mark.skipif("KOLUMN_CORPUS" not in os.environ, reason="needs KOLUMN_CORPUS")
def test_what_a_broker_noted() -> None:
    assert offsets(Path(os.environ["KOLUMN_CORPUS"]) / "delete-records", include_deleted_records=False) == list(range(777, 1500))
