"""A segment in memory gives what the same bytes in a file give."""

import io
import mmap
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.corpus import cases
from kit.encoder import Record, batch
from kit.mutate import make_segment, mutate
from kit.outcome import COLUMNS
from kolumn.core.errors import ArgumentError, CorruptBatchError, KolumnError
from kolumn.cpu_fallback.machine.address import PAD

SEGMENTS = sorted({Path(path) for case in cases() for path in case.segments if Path(path).stat().st_size}, key=str)[::9]
NONE, LZ4, ZSTD = 0, 3, 4
KINDS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "array": lambda data: np.frombuffer(data, np.uint8),
    "pyarrow": pa.py_buffer,
    "BytesIO": io.BytesIO,
    "BufferReader": lambda data: pa.BufferReader(pa.py_buffer(data)),
}


def unnamed(path: Path, folder: Path) -> Path:
    """The same bytes under a name that tells neither topic nor offset, as those in memory."""
    target = folder / "segment"
    target.write_bytes(path.read_bytes())
    return target


@pytest.fixture(scope="module")
def data() -> bytes:
    """A segment of three batches."""
    return b"".join(batch([Record(10 * i + k, b"key", b"value" * 20, i) for k in range(10)]) for i in range(3))


@pytest.mark.sample
@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"binary": "view"}, {"chunk_bytes": 1, "threads": 2}], ids=str)
@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rows_are_those_of_the_file(path: Path, options: dict[str, Any], tmp_path: Path) -> None:
    names = [name for name in COLUMNS if name != "segment"]
    from_file = kolumn.read(unnamed(path, tmp_path), columns=names, include_control=True, **options)
    assert kolumn.read(path.read_bytes(), columns=names, include_control=True, **options).to_pylist() == from_file.to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_memory(kind: str, data: bytes) -> None:
    made = KINDS[kind]
    assert kolumn.read(made(data))["offset"].to_pylist() == list(range(30))
    assert sum(found.num_rows for found in kolumn.scan(made(data), threads=1)) == 30
    assert kolumn.batches(made(data))["baseOffset"].to_pylist() == [0, 10, 20]
    assert kolumn.batches(made(data), check_crcs=False)["baseOffset"].to_pylist() == [0, 10, 20]
    assert kolumn.verify(made(data)).damage.num_rows == 0
    assert kolumn.read(made(data), isolation_level="read_committed").num_rows == 30


def test_a_mapped_file_and_an_open_one(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert kolumn.read(mapped).num_rows == 30
        assert set(kolumn.read(file, columns="segment")["segment"].to_pylist()) == {str(path)}
        file.seek(len(data) // 3)
        assert kolumn.read(file)["offset"].to_pylist() == list(range(10, 30))


def test_topic_and_partition(data: bytes) -> None:
    columns = ["topic", "partition", "segment"]
    assert kolumn.read(data, columns=columns).to_pylist()[0] == {"topic": None, "partition": None, "segment": "<memory>"}
    found = kolumn.read(data, columns=columns, topic="t", partition=3)
    assert found.to_pylist()[0] == {"topic": "t", "partition": 3, "segment": "<memory>"}


def test_nothing() -> None:
    assert kolumn.read(b"").num_rows == 0
    assert kolumn.batches(io.BytesIO()).num_rows == 0


@pytest.mark.parametrize("codec", [NONE, LZ4, ZSTD])
def test_views_point_into_the_buffer(codec: int) -> None:
    """If payloads are not compressed. Of the last batch they point to a copy: loops read some bytes after a payload."""
    entries = [batch([Record(i, b"a key of some bytes", b"v" * 500)], codec=codec) for i in range(40)]
    held = pa.py_buffer(b"".join(entries))
    before = kolumn.read(held, threads=1, columns="value")["value"].to_pylist()
    found = kolumn.read(held, threads=1, columns=["key", "value"], binary="view")
    assert found["value"].to_pylist() == before
    inside = {
        held.address <= buffer.address < held.address + held.size
        for chunk in found["value"].chunks
        for buffer in chunk.buffers()[2:]
        if buffer.size > PAD
    }
    assert (True in inside) == (codec == NONE)


def test_no_byte_after_the_buffer_is_read(data: bytes) -> None:
    """The last page of the memory is followed by one that nobody may read; a read of it would end the process."""
    page = mmap.PAGESIZE
    for cut in (len(data), len(data) - 1, len(data) - 200):
        with mmap.mmap(-1, 8 * page) as room:
            guard = np.frombuffer(room, np.uint8)
            at = 7 * page - cut
            guard[at : 7 * page] = np.frombuffer(data, np.uint8)[:cut]
            _protect(guard.ctypes.data + 7 * page, page, False)
            try:
                for options in ({}, {"binary": "view"}, {"columns": "headers"}):
                    rows = kolumn.read(guard[at : 7 * page], threads=1, **options).num_rows  # type: ignore[arg-type]
                    assert rows == (30 if cut == len(data) else 20)
                kolumn.verify(guard[at : 7 * page])
                kolumn.batches(guard[at : 7 * page], check_crcs=False)
            finally:
                _protect(guard.ctypes.data + 7 * page, page, True)
                del guard


def _protect(address: int, size: int, readable: bool) -> None:
    import ctypes

    call = ctypes.CDLL(None).mprotect
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert call(address, size, 3 if readable else 0) == 0


def test_damage_names_it(data: bytes) -> None:
    broken = data[:200] + b"!" + data[201:]
    with pytest.raises(CorruptBatchError, match="<memory>"):
        kolumn.read(broken)
    left_out = kolumn.Skipped()
    assert kolumn.read(broken, errors="skip", on_damage=left_out).num_rows == 20


def test_mutants_fare_as_in_files(tmp_path: Path) -> None:
    rng = random.Random(5)
    path = tmp_path / "segment"
    for _ in range(150):
        broken = mutate(rng, make_segment(rng)).data
        path.write_bytes(broken)
        for binary in ("contiguous", "view"):
            outcomes = []
            for source in (path, pa.py_buffer(broken)):
                found = kolumn.read(source, errors="skip", threads=1, binary=binary, include_headers=True)
                outcomes.append(found.to_pylist())
            assert outcomes[0] == outcomes[1]
        assert _error(path).replace(str(path), "<memory>") == _error(pa.py_buffer(broken))


def _error(source: Any) -> str:
    try:
        kolumn.read(source, threads=1)
    except KolumnError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("source", [b"/var/lib/kafka/t-0", bytearray(b"t-0"), np.zeros((8, 8), np.uint8)[:, 1], io.StringIO("x")])
def test_what_is_no_segment(source: Any) -> None:
    with pytest.raises(ArgumentError, match="source: expected"):
        kolumn.read(source)


def test_nothing_is_found_beside_it(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the working directory are not taken for its side files."""
    monkeypatch.chdir(tmp_path)
    for name in (".txnindex", f"{0:020}.snapshot", "<memory>.txnindex"):
        (tmp_path / name).write_bytes(b"\0" * 34)
    assert kolumn.read(data, isolation_level="read_committed").num_rows == 30
    with pytest.raises(ArgumentError, match="no schemas: no source is given"):
        kolumn.read(data, value_format="registry")


def test_writing_needs_a_name(data: bytes, tmp_path: Path) -> None:
    assert kolumn.convert(data, tmp_path / "a.log").records == 30
    with pytest.raises(ArgumentError, match=r"name a file that ends with \.log"):
        kolumn.convert(data, tmp_path / "t-0")
