"""Columns that stay on the device hold what `kolumn.read` gives, in the buffers that cuDF wants."""

import os
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.corpus import cases
from kit.device_columns import same, to_arrow
from kit.drafts import HONOURED, tagged
from kit.emulated import Emulated
from kit.encoder import CONTROL, Record, batch, message
from kit.outcome import COLUMNS
from kolumn.core.keywords import ChoiceOptions
from kolumn.kernels.columns import table as table_of
from kolumn.kernels.columns.assemble import _check_size
from kolumn.kernels.columns.table import Column

READABLE = [case for case in cases() if case.segments]


def test_rows_that_are_kept(device: Emulated) -> None:
    columns = ["offset", "value", "headers", "isControl", "topic"]
    for case in READABLE:
        for limits in ({"start_offset": 3, "end_offset": 30}, {"end_offset": 0}):
            same(case.directory, payload="binary", columns=columns, **limits)
        same(case.directory, columns=["offset", "timestamp"], start_timestamp=1, end_timestamp=1 << 60)


CHOICES: dict[str, Any] = {
    "columns": ["value"], "include_headers": True, "include_control": True, "start_offset": 3, "end_offset": 30,
    "start_timestamp": 1, "end_timestamp": 1 << 60, "isolation_level": "read_committed", "open_transactions": "skip",
    "include_snapshots": True,
    "include_deleted_records": False, "threads": 2, "trusted": True,
}  # fmt: skip


# What counts only together with another choice.
TOGETHER: dict[str, dict[str, Any]] = {"open_transactions": {"isolation_level": "read_committed"}}


def test_every_choice_of_records_is_made(device: Emulated) -> None:
    """Options that select records are applied to columns on the device too, or refused."""
    assert CHOICES.keys() == ChoiceOptions.__annotations__.keys() - {"backend", "binary", "include_deleted_segments"}
    for case in READABLE[::4]:
        for name, value in CHOICES.items():
            same(case.directory, **{"columns": ["offset", "value"], name: value, **TOGETHER.get(name, {})})


COMMITTED = {"isolation_level": "read_committed"}
KEPT: list[tuple[dict[str, Any], set[bytes]]] = [
    ({}, {b"none", b"committed", b"aborted", b"open"}),
    (COMMITTED, {b"none", b"committed"}),
    ({**COMMITTED, "open_transactions": "skip"}, {b"none", b"committed"}),
    ({**COMMITTED, "open_transactions": "include"}, {b"none", b"committed", b"open"}),
]


@pytest.mark.parametrize(("options", "kept"), KEPT, ids=range(len(KEPT)))
def test_transactions(options: dict[str, Any], kept: set[bytes], device: Emulated) -> None:
    states = set()
    for case in READABLE:
        for control in (True, False):
            tables = same(case.directory, columns=["offset", "transaction"], include_control=control, **options)
            states |= {state for table in tables for state in to_arrow(table.columns[1]).to_pylist()}
        same(case.directory, columns=["offset"], end_offset=20, **options)
    assert states == kept


def test_times_of_enriched_messages(tmp_path: Path, device: Emulated) -> None:
    """-1 second is none; others before 1970 are times. The bit for relative offsets is no part of a control message's type."""
    messages = [tagged(Record(0, b"k", b"v"), 8, flags=HONOURED)]
    messages += [tagged(Record(i, b"k", b"v"), seconds=seconds) for i, seconds in enumerate([-1, 0, -2, -(2**31), 2**31 - 1], 1)]
    (tmp_path / "a.log").write_bytes(b"".join(messages))
    for control in (True, False):
        same(tmp_path / "a.log", columns=COLUMNS, format="enriched", include_control=control)


def test_rows_at_the_limits(tmp_path: Path, device: Emulated) -> None:
    """Of offsets and times: the first and the last one of a range, the highest there is, and -1, which is no time."""
    most = 2**63 - 1
    times = [-2, -1, 0, 5, 6, 9, 10, most - 1, most]
    messages = [message(1, Record(offset, b"k", b"v", time)) for offset, time in zip([*range(8), most], times, strict=True)]
    (tmp_path / "a.log").write_bytes(b"".join(messages))
    rows = []
    for limits in ({}, {"start_timestamp": 5}, {"end_timestamp": 9}, {"start_timestamp": 5, "end_timestamp": 9}, {"start_timestamp": -2}):
        for more in ({}, {"start_offset": 1}, {"start_offset": 3, "end_offset": 5}):
            tables = same(tmp_path / "a.log", columns=["offset", "timestampMs"], **limits, **more)
            rows.append(sum(table.num_rows for table in tables))
    assert rows == [9, 8, 2, 6, 6, 2, 4, 3, 2, 2, 2, 2, 8, 7, 2]


def test_sequences_that_wrap(tmp_path: Path, device: Emulated) -> None:
    records = [Record(offset, b"k", b"v") for offset in (100, 101, 102, 105)]
    sequences = (-1, 0, 2, 5, 2**31 - 2, 2**31 - 1)
    batches = [batch(records, base_offset=100, producer_id=9, producer_epoch=0, base_sequence=sequence) for sequence in sequences]
    (tmp_path / "a.log").write_bytes(b"".join(batches))
    (table,) = same(tmp_path / "a.log", columns=["sequence"])
    found = to_arrow(table.columns[0]).to_pylist()
    assert found[-8:] == [2**31 - 2, 2**31 - 1, 0, 3, 2**31 - 1, 0, 1, 4]


def test_keys_of_control_records(tmp_path: Path, device: Emulated) -> None:
    """A type is in the third and fourth byte of a key; where there are fewer, what follows the key is none."""
    keys = [None, b"", b"\0", b"\0\0", b"\0\0\0", b"\0\0\0\0", b"\0\0\0\1", b"\xff\0\0\1", b"\0\1\0\1\0", b"\0\0\0\3", b"\0\0\1\0"]
    (tmp_path / "a.log").write_bytes(batch([Record(i, key) for i, key in enumerate(keys)], flags=CONTROL))
    same(tmp_path / "a.log", columns=["controlType", "isControl", "key"], include_control=True)


def test_more_than_cudf_counts() -> None:
    def bytes_of(size: int) -> Column:
        return Column("bytes", 10, children=(Column("int32", 11), Column("uint8", size)))

    _check_size("value", [bytes_of(2**30), bytes_of(2**30 - 1)])
    _check_size("value", [Column("string", 10, children=(Column("int32", 11),))] * 2)
    for wrong in ([bytes_of(2**30)] * 2, [Column("int64", 2**30)] * 2):
        with pytest.raises(kolumn.KolumnError, match="column 'value' would have more than 2147483647"):
            _check_size("value", wrong)


def test_names_of_more_bytes_than_offsets_count(tmp_path: Path, device: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of 110 bytes is repeated for each of 20 million records of a batch."""
    path = tmp_path / "a.log"
    path.write_bytes(batch([Record(i, b"k") for i in range(10)]))
    most = 10 * len(os.fsencode(path))
    monkeypatch.setattr(table_of, "MOST", most)
    same(path, columns=["segment"])
    monkeypatch.setattr(table_of, "MOST", most - 1)
    with pytest.raises(kolumn.KolumnError, match=rf"10 rows of '{path}' would be a column of more than {most - 1} bytes: read a range"):
        same(path, columns=["segment"])
    same(path, columns=["segment"], end_offset=9)
