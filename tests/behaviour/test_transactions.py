"""Committed reads return the same records as a consumer of a live broker, with side files and from the log alone."""

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kolumn
from kit.corpus import Case, cases
from kit.encoder import CONTROL, TRANSACTIONAL, Record, batch, control_batch
from kit.fuzz import MUTANTS
from kolumn.core.errors import KolumnError
from kolumn.log.transactions import from_headers, from_side_files
from kolumn.options import Options
from kolumn.source.segments import find_segments
from kolumn.source.side_files import ABORTED as ABORTED_ENTRY

CASES = [case for case in cases() if case.directory.with_name(case.directory.name + ".committed.parquet").exists()]
COLUMNS = {"offset": "offset", "timestampMs": "timestamp_ms", "timestampType": "timestamp_type", "key": "key", "value": "value"}
ABORT, COMMIT = 0, 1

of_every_case = pytest.mark.parametrize("case", CASES, ids=str)


def committed(source: object, **options: Any) -> pa.Table:
    return kolumn.read(source, **{"isolation_level": "read_committed", "columns": [*COLUMNS, "headers"], **options})


def consumed(case: Case) -> pa.Table:
    """Records that a consumer with isolation.level=read_committed received from the broker that wrote the case."""
    return pq.read_table(case.directory.with_name(case.directory.name + ".committed.parquet")).sort_by("offset")


def states(source: object, **options: Any) -> list[str]:
    return kolumn.read(source, columns=["transaction"], include_control=True, **options)["transaction"].to_pylist()


def copied(case: Case, folder: Path, keep: Callable[[Path], bool]) -> Path:
    target = folder / case.directory.name
    shutil.copytree(case.directory, target, ignore=lambda at, names: [name for name in names if not keep(Path(at, name))])
    return target


WAYS = pytest.mark.parametrize(
    "options",
    [{}, {"threads": 2, "chunk_bytes": 1}, {"binary": "view", "threads": 1}, {"errors": "skip"}],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()) or "default",
)


@pytest.mark.sample
@WAYS
@of_every_case
def test_rows_are_those_of_a_consumer(case: Case, options: dict[str, Any]) -> None:
    found, expected = committed(case.directory, **options), consumed(case)
    for name, other in COLUMNS.items():
        assert found[name].to_pylist() == expected[other].to_pylist()
    assert [[tuple(header.values()) for header in row] for row in found["headers"].to_pylist()] == [
        [tuple(header.values()) for header in row] for row in expected["headers"].to_pylist()
    ]


@pytest.mark.sample
@pytest.mark.parametrize("gone", [{".txnindex"}, {".snapshot"}, {".txnindex", ".snapshot", ".index", ".timeindex"}], ids=sorted)
@of_every_case
def test_side_files_change_nothing(case: Case, gone: set[str], tmp_path: Path) -> None:
    bare = copied(case, tmp_path, lambda path: path.suffix not in gone)
    assert committed(bare).equals(committed(case.directory))
    assert states(bare) == states(case.directory)


@of_every_case
def test_both_ways_are_taken(case: Case) -> None:
    """Complete side files contain the transactions, and the log has the same ones."""
    segments = [one for one in find_segments(case.directory) if one.base_offset is not None]
    found, walked = from_side_files(segments, Options()), from_headers(segments, Options())
    complete = all(Path(one.path).with_suffix(".txnindex").exists() for one in segments)
    assert (found is not None) == complete
    if found is not None:
        assert sorted(found.open) == sorted(walked.open)
        # The index has aborted transactions whose data compaction has removed from the log.
        assert set(found.aborted) >= set(walked.aborted)


@of_every_case
def test_states(case: Case) -> None:
    rows = kolumn.read(case.directory, columns=["offset", "isTransactional", "transaction", "isControl"], include_control=True)
    assert pc.all(pc.equal(pc.equal(rows["transaction"], "none"), pc.invert(rows["isTransactional"]))).as_py()
    data = rows.filter(pc.invert(rows["isControl"]))
    stable = pc.min(data.filter(pc.equal(data["transaction"], "open"))["offset"]).as_py()
    kept = data.filter(pc.is_in(data["transaction"], pa.array(["none", "committed"])))
    if stable is not None:
        kept = kept.filter(pc.less(kept["offset"], stable))
    assert kept["offset"].to_pylist() == consumed(case)["offset"].to_pylist()


@of_every_case
def test_a_range_of_offsets_in_the_middle_of_transactions(case: Case) -> None:
    everything = committed(case.directory)["offset"].to_pylist()
    last = max(kolumn.read(case.directory, columns=["offset"], include_control=True)["offset"].to_pylist())
    chance = random.Random(case.directory.name)
    for _ in range(12):
        start, end = sorted((chance.randint(0, last), chance.randint(0, last + 1)))
        found = committed(case.directory, start_offset=start, end_offset=end, columns=["value"])
        assert len(found) == sum(start <= offset < end for offset in everything)


@of_every_case
def test_one_segment_is_read_with_what_its_neighbours_say(case: Case) -> None:
    found = [offset for path in case.segments for offset in committed(path)["offset"].to_pylist()]
    assert found == consumed(case)["offset"].to_pylist()


@pytest.mark.parametrize("suffix", [".txnindex", ".snapshot"])
@of_every_case
def test_a_damaged_side_file_is_no_side_file(case: Case, suffix: str, tmp_path: Path) -> None:
    chance = random.Random(suffix)
    damaged = copied(case, tmp_path, lambda path: True)
    expected = committed(case.directory)
    for _ in range(5):
        for path in damaged.glob(f"*{suffix}"):
            data = bytearray((case.directory / path.name).read_bytes())
            for _ in range(chance.randint(1, 3)):
                if data:
                    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data[: chance.randint(0, 2 * len(data))])
        assert committed(damaged).equals(expected)


# Transactions that are not in any corpus.


def data(offset: int, producer: int, count: int = 1) -> bytes:
    records = [Record(offset + i, None, b"%d" % (offset + i), 0) for i in range(count)]
    return batch(records, flags=TRANSACTIONAL, producer_id=producer)


def plain(offset: int, producer: int = -1) -> bytes:
    return batch([Record(offset, None, b"plain", 0)], producer_id=producer)


def log(folder: Path, *segments: tuple[int, list[bytes]]) -> Path:
    target = folder / "t-0"
    target.mkdir(exist_ok=True)
    for base, entries in segments:
        (target / f"{base:020}.log").write_bytes(b"".join(entries))
    return target


def test_a_producer_uses_its_id_again(tmp_path: Path) -> None:
    source = log(
        tmp_path,
        (0, [data(0, 7), control_batch(1, ABORT), data(2, 7), control_batch(3, COMMIT), plain(4, 7), data(5, 7), data(6, 8)]),
        (7, [control_batch(7, COMMIT, producer_id=8), control_batch(8, ABORT), plain(9, 7)]),
    )
    assert committed(source)["offset"].to_pylist() == [2, 4, 6, 9]
    assert states(source) == ["aborted", "aborted", *["committed"] * 2, "none", "aborted", "committed", "committed", "aborted", "none"]


def test_an_open_transaction_withholds_everything_after_it(tmp_path: Path) -> None:
    source = log(tmp_path, (0, [plain(0), data(1, 7, 3), data(4, 8), control_batch(5, COMMIT, producer_id=8), plain(6)]))
    assert committed(source)["offset"].to_pylist() == [0]
    assert states(source) == ["none", "open", "open", "open", "committed", "committed", "none"]


def test_an_abort_of_nothing(tmp_path: Path) -> None:
    source = log(tmp_path, (0, [plain(0), control_batch(1, ABORT), data(2, 7), control_batch(3, COMMIT), control_batch(4, ABORT)]))
    assert committed(source)["offset"].to_pylist() == [0, 2]


def test_a_damaged_batch_opens_and_ends_nothing(tmp_path: Path) -> None:
    broken = bytearray(data(1, 9))
    broken[-1] ^= 1
    source = log(tmp_path, (0, [plain(0), bytes(broken), plain(2)]))
    assert committed(source, errors="skip")["offset"].to_pylist() == [0, 2]
    with pytest.raises(KolumnError, match="stored checksum"):
        committed(source)


def test_without_its_marker_a_transaction_is_open(tmp_path: Path) -> None:
    marker = bytearray(control_batch(2, COMMIT))
    marker[-1] ^= 1
    source = log(tmp_path, (0, [plain(0), data(1, 7), bytes(marker), plain(3)]))
    assert committed(source, errors="skip")["offset"].to_pylist() == [0]


@pytest.mark.parametrize("last", [COMMIT, ABORT, None])
def test_an_index_knows_of_markers_that_are_damaged(last: int | None, tmp_path: Path) -> None:
    """Without its marker a transaction would go on to the next one of its producer. What the log contradicts is not believed."""
    markers = [bytearray(control_batch(offset, ABORT)) for offset in (2, 5)]
    for marker in markers:
        marker[-1] ^= 1
    source = log(tmp_path, (0, [plain(0), data(1, 7), markers[0], data(3, 7), plain(4), markers[1], data(6, 7), data(7, 7)]))
    if last is not None:
        log_file = source / f"{0:020}.log"
        log_file.write_bytes(log_file.read_bytes() + control_batch(8, last) + plain(9))
    index = [(7, 1, 2), (7, 3, 5), (7, 6, 7)]
    entries = [np.array((0, *one, 0), ABORTED_ENTRY).tobytes() for one in index]
    (source / f"{0:020}.txnindex").write_bytes(b"".join(entries))
    found = {COMMIT: "committed", ABORT: "aborted", None: "open"}[last]
    expected = ["none", "aborted", "aborted", "none", found, found, *([found, "none"] if last is not None else [])]
    assert states(source, errors="skip") == expected
    offsets = {COMMIT: [0, 4, 6, 7, 9], ABORT: [0, 4, 9], None: [0, 4]}[last]
    assert committed(source, errors="skip")["offset"].to_pylist() == offsets


def test_mutants_give_rows_of_the_original_or_an_error(tmp_path: Path) -> None:
    entries = [plain(0), data(1, 7, 2), data(3, 8), control_batch(4, ABORT, producer_id=8), control_batch(5, COMMIT), data(6, 8), plain(7)]
    original, chance = b"".join(entries), random.Random(5)
    starts = [sum(map(len, entries[:i])) for i in range(len(entries))]
    aborted = {3, 6}
    for _ in range(min(3000, MUTANTS // 2)):
        mutant = bytearray(original)
        # No checksum covers the base offset, the 8 bytes of each entry that a broker sets without reading the rest.
        place = chance.choice([i for i in range(len(mutant)) if not any(at <= i < at + 8 for at in starts)])
        mutant[place] ^= 1 << chance.randrange(8)
        source = log(tmp_path, (0, [bytes(mutant[: chance.choice([len(mutant), chance.randrange(len(mutant))])])]))
        assert not aborted & set(committed(source, errors="skip")["offset"].to_pylist())
        with contextlib.suppress(KolumnError):
            assert set(committed(source)["offset"].to_pylist()) <= {0, 1, 2, 7}


def test_markers_may_be_compressed(tmp_path: Path) -> None:
    """No broker compresses them, but Java's reader accepts it."""
    key = {0: b"\0\0\0\0", 1: b"\0\0\0\1"}
    data = b"".join(
        batch(
            [Record(at, key[kind] if control else None, b"v", 0)], codec=4 * control, flags=TRANSACTIONAL | CONTROL * control, producer_id=7
        )
        for at, control, kind in ((0, False, 0), (1, True, 0), (2, False, 0), (3, True, 1))
    )
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(data)
    found = kolumn.read(tmp_path, columns=["offset"], isolation_level="read_committed")
    assert found["offset"].to_pylist() == [2]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0\0", b"\xff\xff\0\1", b"\0\0\0\1"])
def test_a_control_record_without_a_type_ends_nothing(key: bytes | None, last: bool, tmp_path: Path) -> None:
    """Its key is shorter than four bytes, or of a negative version; also where it is the last one that is decoded."""
    odd = batch([Record(1, key, b"v", 0)], flags=TRANSACTIONAL | CONTROL, producer_id=7, producer_epoch=3)
    source = log(tmp_path, (0, [data(0, 7), odd] if last else [data(0, 7), odd, plain(2), control_batch(3, ABORT, producer_id=8)]))
    ended = key == b"\0\0\0\1"
    assert states(source)[0] == ("committed" if ended else "open")
    whole = [0] if last else [0, 2]
    assert committed(source)["offset"].to_pylist() == (whole if ended else [])
    assert kolumn.verify(source).ok
