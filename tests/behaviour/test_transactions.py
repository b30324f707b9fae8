"""Committed reads return the same records as a consumer of a live broker, with side files and from the log alone."""

import contextlib
import json
import logging
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import kolumn
from kit import asked
from kit.corpus import Case, cases
from kit.encoder import CONTROL, TRANSACTIONAL, Record, batch, control_batch
from kit.fuzz import MUTANTS
from kit.oracle import Row
from kit.outcome import raises
from kit.replicas import write_log
from kit.settled import in_folder
from kolumn.copies.transactions import from_headers, from_side_files
from kolumn.damage.stopped import StoppedAt, lines
from kolumn.options import Options
from kolumn.source.segments import find_segments
from kolumn.source.side_files import ABORTED as ABORTED_ENTRY

CASES = [case for case in cases() if case.directory.with_name(case.directory.name + ".committed.parquet").exists()]
COLUMNS = {"offset": "offset", "timestampMs": "timestamp_ms", "timestampType": "timestamp_type", "key": "key", "value": "value"}
ABORT, COMMIT = 0, 1
offsets = partial(asked.offsets, isolation_level="read_committed")

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


WAYS: list[dict[str, Any]] = [
    {}, {"threads": 2, "chunk_bytes": 1}, {"binary": "view", "threads": 1}, {"errors": "skip"}, {"threads": 3, "memory_bytes": 1},
]  # fmt: skip


@pytest.mark.sample
@pytest.mark.parametrize("options", WAYS, ids=str)
@of_every_case
def test_rows_are_those_of_a_consumer(case: Case, options: dict[str, Any]) -> None:
    found, expected = committed(case.directory, **options), consumed(case)
    for name, its in COLUMNS.items():
        assert found[name].to_pylist() == expected[its].to_pylist()
    one, other = ([[tuple(h.values()) for h in row] for row in table["headers"].to_pylist()] for table in (found, expected))
    assert one == other


@pytest.mark.sample
@pytest.mark.parametrize("gone", [{".txnindex"}, {".snapshot"}, {".txnindex", ".snapshot", ".index", ".timeindex"}], ids=sorted)
@of_every_case
def test_side_files_change_nothing(case: Case, gone: set[str], tmp_path: Path) -> None:
    bare = copied(case, tmp_path, lambda path: path.suffix not in gone)
    assert committed(bare).equals(committed(case.directory))
    assert states(bare) == states(case.directory)


@of_every_case
def test_states_and_both_ways_to_learn_them(case: Case) -> None:
    rows = kolumn.read(case.directory, columns=["offset", "isTransactional", "transaction", "isControl"], include_control=True)
    assert pc.all(pc.equal(pc.equal(rows["transaction"], "none"), pc.invert(rows["isTransactional"]))).as_py()
    data = rows.filter(pc.invert(rows["isControl"]))
    stable = pc.min(data.filter(pc.equal(data["transaction"], "open"))["offset"]).as_py()
    kept = data.filter(pc.is_in(data["transaction"], pa.array(["none", "committed"])))
    if stable is not None:
        kept = kept.filter(pc.less(kept["offset"], stable))
    assert kept["offset"].to_pylist() == consumed(case)["offset"].to_pylist()
    # Complete side files contain the transactions, and the log has the same ones.
    segments = [one for one in find_segments(case.directory) if one.base_offset is not None]
    found, walked = from_side_files(segments, Options()), from_headers(segments, Options())
    assert (found is not None) == all(Path(one.path).with_suffix(".txnindex").exists() for one in segments)
    if found is not None:
        assert sorted(found.open) == sorted(walked.open)
        # The index has aborted transactions whose data compaction has removed from the log.
        assert set(found.aborted) >= set(walked.aborted)


OPEN_TOO = {"skip": {"none", "committed"}, "include": {"none", "committed", "open"}}


@pytest.mark.sample
@pytest.mark.parametrize("of_open", OPEN_TOO)
@of_every_case
def test_a_read_that_goes_on_after_open_transactions(case: Case, of_open: str, tmp_path: Path) -> None:
    kept = [row.offset for row, state in in_folder(case.directory) if state in OPEN_TOO[of_open] and not row.isControl]
    bare = copied(case, tmp_path, lambda path: path.suffix not in (".txnindex", ".snapshot"))
    for options in WAYS:
        assert offsets(case.directory, open_transactions=of_open, **options) == kept
    assert offsets(bare, open_transactions=of_open) == kept
    start, end = kept[len(kept) // 2], kept[-1]
    assert offsets(bare, open_transactions=of_open, start_offset=start, end_offset=end) == [one for one in kept if start <= one < end]
    shown = committed(case.directory, open_transactions=of_open, columns=["transaction"])["transaction"]
    assert set(shown.to_pylist()) <= OPEN_TOO[of_open]


def test_open_transactions_matter_to_committed_reads_alone(tmp_path: Path) -> None:
    source = log(tmp_path, plain(0), data(1, 7), plain(2), data(3, 8), control_batch(4, COMMIT, producer_id=8), data(5, 7))
    assert [offsets(source, open_transactions=one) for one in ("stop", "skip", "include")] == [[0], [0, 2, 3], [0, 1, 2, 3, 5]]
    assert asked.offsets(source, open_transactions="stop") == [0, 1, 2, 3, 5]
    raises(kolumn.ArgumentError, "'skip': expected isolation_level='read_committed' with it", kolumn.read, source, open_transactions="skip")
    raises(kolumn.ArgumentError, "open_transactions='no': expected one of stop, skip, include", kolumn.read, source, open_transactions="no")
    result = asked.invoked("cat", "--open-transactions", "skip", source)
    assert (result.exit_code, "expected --isolation-level read_committed with it" in result.stderr) == (2, True)


def stops(source: object, **options: Any) -> list[StoppedAt]:
    """Where a committed read stops, which it says."""
    skipped = kolumn.Skipped()
    committed(source, columns=["offset"], on_damage=skipped, **options)
    assert skipped.pieces == []
    return skipped.stopped


def withheld(rows: list[tuple[Row, str]], start: int, end: int) -> list[tuple[int, int, int, int]]:
    """The same of plain rows, if a record is withheld of those that are asked for: offset, producer, epoch, number of committed records."""
    first = min((row for row, state in rows if state == "open" and not row.isControl), key=attrgetter("offset"), default=None)
    if first is None:
        return []
    after = [state for row, state in rows if max(first.offset, start) <= row.offset < end and not row.isControl]
    count = sum(state in ("none", "committed") for state in after)
    return [(first.offset, first.producerId, first.producerEpoch, count)] if after else []


@pytest.mark.sample
@of_every_case
def test_a_read_says_where_it_stops(case: Case, tmp_path: Path) -> None:
    rows, chance = in_folder(case.directory), random.Random(case.directory.name)
    bare = copied(case, tmp_path, lambda path: path.suffix not in (".txnindex", ".snapshot"))
    last = rows[-1][0].offset
    asked_for = [(0, last + 1)] + [(chance.randint(0, last), chance.randint(0, last + 1)) for _ in range(12)]
    for start, end in asked_for:
        for source in (case.directory, bare):
            found = stops(source, start_offset=start, end_offset=end)
            said = [(one.offset, one.producer_id, one.producer_epoch, one.records) for one in found]
            assert said == withheld(rows, start, end)
            assert [one.log for one in found if one.log != case.directory.name or one.is_estimate] == []
    assert stops([case.directory, bare], replicas="merge") == stops(case.directory)
    for of_open in OPEN_TOO:
        assert stops(bare, open_transactions=of_open) == []


def test_what_a_read_that_stops_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = log(tmp_path, plain(0), data(1, 7), plain(2), data(3, 8), control_batch(4, COMMIT, producer_id=8), data(5, 9), plain(6))
    epoch = f"(epoch {kolumn.read(source, columns=['producerEpoch'])[0][1].as_py()})"
    said = rf"t-0 stops at offset 1: a transaction of producer 7 {re.escape(epoch)} has been open since 1970-01-01T00:00:00\.000Z"
    said += r" \([\d.]+ (?:years|days)\); "
    with caplog.at_level(logging.WARNING):
        assert committed(source).num_rows == 1
    assert re.fullmatch(rf'{said}3 committed records after it are not read\. open_transactions="skip" reads past it', caplog.messages[0])
    caplog.clear()
    # Only whoever comes to the end hears of it, and only of what was asked for.
    assert next(kolumn.scan(source, isolation_level="read_committed", end_offset=1)).num_rows == 1
    assert stops(source, end_offset=1) == stops(source, start_timestamp=1) == []
    assert [one.records for one in stops(source, start_offset=6)] == [1]
    # Producers set these times, which are in no order.
    assert [(one.records, one.is_estimate) for one in stops(source, start_timestamp=0)] == [(3, True)]
    assert re.match(rf"{said}no committed record comes after it", str(stops(source, end_offset=2)[0]))
    # The first record of a batch need not be its earliest one.
    source = log(tmp_path, batch([Record(0, b"k", b"v", 10)], flags=TRANSACTIONAL, producer_id=7), times(1, 200, 50), times(3, 60, 200))
    for options, found in (({}, 2), ({"end_offset": 3}, 0), ({"start_offset": 1, "end_offset": 3}, 0), ({"start_offset": 3}, 2)):
        (stop,) = stops(source, end_timestamp=100, **options)
        assert (stop.records, stop.is_estimate) == (found, True)
        left = "about 2 committed records after it are not read" if found else "there may be committed records after it, which are not read"
        assert str(stop).endswith(f"; {left}")
    assert stops(log(tmp_path, data(0, 7), plain(1)), start_offset=1, end_timestamp=0) == []
    assert caplog.messages == []


def test_where_several_reads_stop(tmp_path: Path) -> None:
    """Other records add up, and the same ones count once; folders of one name are different logs."""
    skipped = kolumn.Skipped()
    one, other = (log(tmp_path / name, data(0, 7), *map(plain, range(1, 7))) for name in "ab")
    for (start, end), count in {(0, 3): 2, (5, 9): 4, (0, 2): 4, (3, 5): 6, (0, 9): 6}.items():
        committed(one, start_offset=start, end_offset=end, on_damage=skipped)
        assert [stop.records for stop in skipped.stopped] == [count]
    committed(other, on_damage=skipped)
    assert [(stop.log, stop.records) for stop in skipped.stopped] == [("t-0", 6)] * 2


def test_counts_that_are_not_known() -> None:
    stop = StoppedAt("t-0", 1, 7, records=None)
    for counts, said in (
        ([(None, False)] * 2, "committed records in them may not be"), ([(0, True)], "committed records in them may not be"),
        ([(None, False), (2, True)], "at least 2 committed records in them are not"),
        ([(3, True)], "about 3 committed records in them are not"),
    ):  # fmt: skip
        some = [replace(stop, records=records, is_estimate=is_estimate) for records, is_estimate in counts]
        assert [*lines([stop] * 3 + some, "Advice")][-1] == f"and {len(some)} more stop likewise; {said} read. Advice"


@pytest.mark.parametrize("command", ["cat {0}", "to-parquet {0} -o {1}", "to-delta {0} {1}", "sql {0} --json select+*+from+t"])
def test_commands_say_where_they_stop(command: str, tmp_path: Path) -> None:
    """Once, also if each segment is read on its own. The exit code stays 0."""
    source = write_log(tmp_path, (0, [plain(0), data(1, 7), plain(2)]), (3, [plain(3), plain(4)]))
    arguments = [word.format(source, tmp_path / "target").replace("+", " ") for word in command.split()]
    result = asked.invoked(*arguments, "--isolation-level", "read_committed")
    (said,) = [line for line in result.stderr.splitlines() if "stops at" in line]
    past_it = "--open-transactions skip reads past it; `kolumn transactions` lists it"
    advice = "A later run appends the rest once the transaction has ended" if command.startswith("to-delta") else past_it
    assert said.endswith(f"; 3 committed records after it are not read. {advice}")
    assert result.exit_code == 0


@of_every_case
def test_the_overview_knows_open_transactions_from_headers(case: Case) -> None:
    shown = asked.invoked(case.directory).stdout
    [partition] = json.loads(asked.invoked("overview", case.directory, "--json").stdout)["partitions"]
    found = from_headers([one for one in find_segments(case.directory) if one.base_offset is not None], Options())
    assert partition["openTransactions"] == len(found.open)
    said = f"Open transactions, where a committed read stops: {case.directory.name} at offset {found.last_stable_offset}; "
    assert (said in shown, "--isolation-level read_committed --open-transactions skip" in shown) == (bool(found.open),) * 2


def test_the_overview_names_a_folder_that_is_no_topic_partition(tmp_path: Path) -> None:
    folder = tmp_path / "restored"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(batch([Record(0, b"k", b"v", 1)], flags=TRANSACTIONAL, producer_id=1, producer_epoch=0))
    said = f"Open transactions, where a committed read stops: {folder} at offset 0; "
    assert said in asked.invoked(folder).stdout


def test_a_command_without_records_says_what_there_is(tmp_path: Path) -> None:
    source = log(tmp_path, plain(0), plain(1), batch([Record(2, b"k", b"v", 1_700_000_000_000)]))
    said = "no record matches; the source has 3 records, from 1970-01-01T00:00:00.000Z to 2023-11-14T22:13:20.000Z, at offsets 0 to 2"
    for command in ("cat --key nokey", "cat --since 2030-01-01", f"to-parquet --until 1960-01-01 -o {tmp_path / 'parquet'}"):
        result = asked.invoked(*command.split(), source)
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, said)
    for command in ("cat --key k", "cat -n 0"):
        assert asked.invoked(*command.split(), source).stderr == ""
    assert asked.invoked("cat", log(tmp_path / "2", b"")).stderr == "the source has no records\n"


def test_several_logs_that_stop_are_a_few_lines(tmp_path: Path) -> None:
    for i in range(6):
        asked.put(tmp_path / f"t-{i}", plain(0), data(1, 7), plain(2), plain(3))
    lines = asked.invoked("cat", "--isolation-level", "read_committed", tmp_path).stderr.splitlines()
    assert [line[:15] for line in lines] == ["t-0 stops at of", "t-1 stops at of", "t-2 stops at of", "and 3 more stop"]
    assert "; 6 committed records in them are not read. --open" in lines[-1]


@of_every_case
def test_ranges_that_cut_transactions_and_single_segments(case: Case) -> None:
    everything = consumed(case)["offset"].to_pylist()
    assert [offset for path in case.segments for offset in offsets(path)] == everything
    last = max(asked.offsets(case.directory, include_control=True))
    chance = random.Random(case.directory.name)
    for _ in range(12):
        start, end = sorted((chance.randint(0, last), chance.randint(0, last + 1)))
        assert offsets(case.directory, start_offset=start, end_offset=end) == [one for one in everything if start <= one < end]


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


def data(offset: int, producer: int, count: int = 1) -> bytes:
    records = [Record(offset + i, None, b"%d" % (offset + i), 0) for i in range(count)]
    return batch(records, flags=TRANSACTIONAL, producer_id=producer)


def times(offset: int, *moments: int) -> bytes:
    return batch([Record(offset + i, None, b"v", moment) for i, moment in enumerate(moments)])


def plain(offset: int, producer: int = -1) -> bytes:
    return batch([Record(offset, None, b"plain", 0)], producer_id=producer)


def log(folder: Path, *entries: bytes) -> Path:
    shutil.rmtree(folder / "t-0", ignore_errors=True)
    return write_log(folder, (0, list(entries)))


def spoiled(entry: bytes) -> bytes:
    return entry[:-1] + bytes([entry[-1] ^ 1])


def test_producers_that_use_their_ids_again_and_open_transactions(tmp_path: Path) -> None:
    one = [data(0, 7), control_batch(1, ABORT), data(2, 7), control_batch(3, COMMIT), plain(4, 7), data(5, 7), data(6, 8)]
    source = write_log(tmp_path, (0, one), (7, [control_batch(7, COMMIT, producer_id=8), control_batch(8, ABORT), plain(9, 7)]))
    assert offsets(source) == [2, 4, 6, 9]
    assert states(source) == ["aborted", "aborted", *["committed"] * 2, "none", "aborted", "committed", "committed", "aborted", "none"]
    # An open one withholds everything after it, and so does one whose marker is damaged; a damaged batch opens and ends nothing.
    source = log(tmp_path / "2", plain(0), data(1, 7, 3), data(4, 8), control_batch(5, COMMIT, producer_id=8), plain(6))
    assert offsets(source) == [0]
    assert states(source) == ["none", "open", "open", "open", "committed", "committed", "none"]
    source = log(tmp_path / "2", plain(0), control_batch(1, ABORT), data(2, 7), control_batch(3, COMMIT), control_batch(4, ABORT))
    assert offsets(source) == [0, 2]
    assert offsets(log(tmp_path / "2", plain(0), data(1, 7), spoiled(control_batch(2, COMMIT)), plain(3)), errors="skip") == [0]
    source = log(tmp_path / "2", plain(0), spoiled(data(1, 9)), plain(2))
    assert offsets(source, errors="skip") == [0, 2]
    raises(kolumn.KolumnError, "stored checksum", committed, source)
    # A transaction begins with its first intact batch, also if it is aborted.
    source = log(tmp_path / "2", spoiled(data(0, 7)), data(1, 7), data(2, 7), control_batch(3, ABORT), plain(4))
    assert states(source, errors="skip") == ["aborted", "aborted", "aborted", "none"]
    # No broker compresses them, but Java's reader accepts it.

    def entry(offset: int, key: bytes | None) -> bytes:
        flags = TRANSACTIONAL | CONTROL * (key is not None)
        return batch([Record(offset, key, b"v", 0)], codec=4 * (key is not None), flags=flags, producer_id=7)

    source = log(tmp_path / "3", entry(0, None), entry(1, b"\0\0\0\0"), entry(2, None), entry(3, b"\0\0\0\1"))
    assert offsets(source) == [2]


@pytest.mark.parametrize("last", [COMMIT, ABORT, None])
def test_an_index_knows_of_markers_that_are_damaged(last: int | None, tmp_path: Path) -> None:
    """Without its marker a transaction would go on to the next one of its producer. What the log contradicts is not believed."""
    markers = [spoiled(control_batch(offset, ABORT)) for offset in (2, 5)]
    end = [] if last is None else [control_batch(8, last), plain(9)]
    source = log(tmp_path, plain(0), data(1, 7), markers[0], data(3, 7), plain(4), markers[1], data(6, 7), data(7, 7), *end)
    entries = [np.array((0, *transaction, 0), ABORTED_ENTRY).tobytes() for transaction in [(7, 1, 2), (7, 3, 5), (7, 6, 7)]]
    (source / f"{0:020}.txnindex").write_bytes(b"".join(entries))
    state, left = {COMMIT: ("committed", [0, 4, 6, 7, 9]), ABORT: ("aborted", [0, 4, 9]), None: ("open", [0, 4])}[last]
    expected = ["none", "aborted", "aborted", "none", state, state, *([state, "none"] if last is not None else [])]
    assert states(source, errors="skip") == expected
    assert offsets(source, errors="skip") == left


def test_mutants_give_rows_of_the_original_or_an_error(tmp_path: Path) -> None:
    entries = [plain(0), data(1, 7, 2), data(3, 8), control_batch(4, ABORT, producer_id=8), control_batch(5, COMMIT), data(6, 8), plain(7)]
    original, chance = b"".join(entries), random.Random(5)
    starts = [sum(map(len, entries[:i])) for i in range(len(entries))]
    # No checksum covers the base offset, the 8 bytes of each entry that a broker sets without reading the rest.
    covered = [i for i in range(len(original)) if not any(start <= i < start + 8 for start in starts)]
    for _ in range(min(3000, MUTANTS // 2)):
        mutant = bytearray(original)
        mutant[chance.choice(covered)] ^= 1 << chance.randrange(8)
        source = log(tmp_path, bytes(mutant[: chance.choice([len(mutant), chance.randrange(len(mutant))])]))
        assert not {3, 6} & set(offsets(source, errors="skip"))
        with contextlib.suppress(kolumn.KolumnError):
            assert set(offsets(source)) <= {0, 1, 2, 7}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0\0", b"\xff\xff\0\1", b"\0\0\0\1"])
def test_a_control_record_without_a_type_ends_nothing(key: bytes | None, last: bool, tmp_path: Path) -> None:
    """Its key is shorter than four bytes, or of a negative version; also where it is the last one that is decoded."""
    odd = batch([Record(1, key, b"v", 0)], flags=TRANSACTIONAL | CONTROL, producer_id=7, producer_epoch=3)
    source = log(tmp_path, data(0, 7), odd, *([] if last else [plain(2), control_batch(3, ABORT, producer_id=8)]))
    ended = key == b"\0\0\0\1"
    assert states(source)[0] == ("committed" if ended else "open")
    assert offsets(source) == (([0] if last else [0, 2]) if ended else [])
    assert kolumn.verify(source).ok
