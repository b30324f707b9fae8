"""Memory of columns: what a result keeps of it, and nulls, whose bitmap has no contents before the first one."""

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.encoder import Record, batch, message, overlong, raw_batch, record_body, varint, with_crc
from kolumn.cpu_fallback import columns as memory
from kolumn.cpu_fallback.columns import RecordMemory
from kolumn.cpu_fallback.fields.target import COPY, HEADER_KEY, HEADER_VALUE, HEADERS, KEY, ROWS, SKIP, VALUE, VIEW

ROOM = 100_000


def written(rows: int, key_bytes: int, value_bytes: int, headers: int = 0, **more: Any) -> tuple[RecordMemory, list[int]]:
    """Memory, and write positions as if loops had written so much."""
    made = RecordMemory(ROOM, ROOM * 10, ROOM * 20, ROOM if headers else 0, COPY, COPY, headers > 0, **more)
    at = made.at.tolist()
    for slot, count in ((ROWS, rows), (KEY, key_bytes), (VALUE, value_bytes), (HEADERS, headers), (HEADER_KEY, headers), (HEADER_VALUE, 1)):
        at[slot] = count
    return made, at


def kept(made: Any) -> int:
    """Bytes of all blocks that the buffers of columns are in."""
    buffers = [made.offset, made.timestamp, made.key.ends, made.key.data, made.value.ends, made.value.data]
    buffers += [made.header_ends, made.header_key.ends, made.header_key.data, made.header_value.data] if made.header_ends else []
    blocks = {}
    for buffer in buffers:
        whole = buffer
        while whole.parent is not None:
            whole = whole.parent
        blocks[whole.address] = whole.size
    return sum(blocks.values())


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("headers", [0, 5])
def test_a_result_keeps_twice_its_bytes_at_most(headers: int, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of values it keeps memory of its own: whoever keeps no values keeps no memory of them."""
    if apart:
        monkeypatch.setattr(memory, "TOGETHER", 0)
    for share in (1.0, 0.9, 0.51, 0.3, 0.01, 0.0):
        rows, count = int(ROOM * share), int(ROOM * share) if headers else 0
        made, at = written(rows, rows * 10, rows * 20, count)
        columns = made.columns(at)
        del made
        needed = rows * (8 + 8 + 4 + 4 + 10 + 20) + count * (4 + 4 + 4 + 1)
        assert kept(columns) <= 2.1 * needed + 10_000
        sizes = columns.offset.size, columns.key.ends.size, columns.key.data.size, columns.value.data.size
        assert sizes == (8 * rows, 4 * (rows + 1), 10 * rows, 20 * rows)
        if share == 1 and not apart:
            others = columns.offset, columns.timestamp, columns.key.ends, columns.key.data, columns.value.ends
            (address,) = {part.parent.address for part in others}
            assert columns.value.data.parent.address != address


@pytest.mark.parametrize("mode", [COPY, VIEW, SKIP])
def test_parts_do_not_overlap(mode: int) -> None:
    target = RecordMemory(7, 5, 0, 3, mode, VIEW, want_headers=True, header_bytes=(9, 9)).target
    places = [target.offset, target.timestamp, target.value.views, target.value.valid, target.header_ends]
    for column in (target.key, target.header_key, target.header_value):
        places += [column.ends, column.valid, column.arena]
    used = sorted(place for place in places if place)
    assert all(after - before >= 64 + 8 for before, after in pairwise(used))


def of(offset: int, count: int, *, nulls: bool) -> bytes:
    """A batch in which every third key and every second value is null, or none."""
    keys = [None if nulls and i % 3 == 0 else b"k%d" % i for i in range(count)]
    values = [None if nulls and i % 2 else b"v" * i for i in range(count)]
    headers = [((b"h", None if nulls and i % 5 == 0 else b"x"),) * (i % 3) for i in range(count)]
    rows = zip(range(offset, offset + count), keys, values, headers, strict=True)
    return batch([Record(number, key, value, 5, some) for number, key, value, some in rows])


def malformed(entry: bytes) -> bytes:
    """A batch with one record less than its header says; the checksum is right."""
    return with_crc(entry[:57] + struct.pack(">i", struct.unpack(">i", entry[57:61])[0] + 1) + entry[61:])


def check(table: pa.Table) -> None:
    table.validate(full=True)
    for name in table.column_names:
        for chunk in table[name].chunks:
            assert chunk.null_count == sum(value is None for value in chunk.to_pylist()), name
            assert (chunk.null_count == 0) == (chunk.buffers()[0] is None), name


@pytest.mark.parametrize("binary", ["contiguous", "view"])
@pytest.mark.parametrize("columns", [["offset", "key", "value"], ["offset", "key", "value", "headers", "tombstone"]])
def test_nulls_of_what_is_left_out_do_not_count(columns: list[str], binary: Any, tmp_path: Path) -> None:
    """Of batches whose count is wrong what was decoded is overwritten by the next ones; then they are decoded again, without the count."""
    whole = [of(0, 50, nulls=True), of(50, 9, nulls=False), of(100, 40, nulls=True), of(140, 200, nulls=False), of(340, 60, nulls=True)]
    bad = [malformed(of(59, 41, nulls=True)), malformed(of(400, 20, nulls=True))]
    for number, parts in enumerate([[*whole[:2], bad[0], *whole[2:], bad[1]], [bad[0], whole[3]], [whole[1], bad[0]]]):
        tables = []
        for i, (data, errors) in enumerate([(b"".join(parts), "skip"), *((one, "raise" if one in whole else "skip") for one in parts)]):
            path = tmp_path / f"{number}-{i}.log"
            path.write_bytes(data)
            tables.append(kolumn.read(path, columns=columns, binary=binary, errors=errors, threads=1))
            check(tables[-1])
        assert tables[0].to_pylist() == pa.concat_tables(tables[1:]).to_pylist()


@pytest.mark.parametrize("columns", [["offset", "key", "value"], ["offset", "key", "value", "headers"]])
def test_nulls_of_several_segments_and_messages(columns: list[str], tmp_path: Path) -> None:
    """Segments that are decoded together, up to one that is not; and messages, of which one is malformed."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    for i in range(12):
        entry = of(60 * i, 60, nulls=i > 3)
        (folder / f"{60 * i:020}.log").write_bytes(malformed(entry) if i == 8 else entry)
    found = kolumn.read(folder, columns=columns, errors="skip", threads=1)
    assert found["offset"].to_pylist() == list(range(720))
    assert found["key"].to_pylist() == [None if i >= 240 and i % 60 % 3 == 0 else b"k%d" % (i % 60) for i in found["offset"].to_pylist()]
    check(found)
    path = tmp_path / "messages.log"
    messages = [message(1, Record(i, None if i % 4 == 1 else b"key", None if i % 3 == 1 else b"value", 7)) for i in range(90)]
    path.write_bytes(b"".join(messages))
    found = kolumn.read(path, columns=columns, threads=1)
    assert found["value"].to_pylist() == [None if i % 3 == 1 else b"value" for i in range(90)]
    check(found)


@pytest.mark.parametrize("nulls", [1, 5])
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_nulls_of_headers_that_are_decoded_twice(length: int, nulls: int, path: Path) -> None:
    """The loop for short headers leaves a record to the general one at a length of more than two bytes; Java accepts up to five."""
    headers = ((b"null", None),) * nulls + ((b"last", b"value"),)
    body = record_body(Record(0, b"k", b"v", 5, headers), 0, 5).removesuffix(varint(5) + b"value") + overlong(varint(5), length) + b"value"
    path.write_bytes(raw_batch((varint(len(body)) + body) * 3, 3, last_delta=2, base_timestamp=5, max_timestamp=5))
    found = kolumn.read(path, columns=["headers"], threads=1)
    found.validate(full=True)
    assert found["headers"].to_pylist() == [[{"key": key.decode(), "value": value} for key, value in headers]] * 3
    assert found["headers"].combine_chunks().values.field("value").null_count == 3 * nulls
