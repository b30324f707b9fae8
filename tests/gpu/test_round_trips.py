"""How often does a chunk make the host wait for the device, and how often is the driver asked for something? Each takes time in Python."""

import ctypes
import gc
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import zstandard

import kolumn
from kit.device_columns import resident
from kit.emulated import Emulated, HostMemory, run_loops
from kit.encoder import Record, batch, raw_batch
from kolumn.core import recycle
from kolumn.core.errors import KolumnError
from kolumn.decode.device import chunk
from kolumn.decode.device.chunk import AT_A_TIME, EMPTIED, LOADED, DeviceChunk
from kolumn.decode.host.chunks import Chunk
from kolumn.formats.codecs import ZSTD
from kolumn.kernels.machine import device as current
from kolumn.kernels.machine.staging import Staged

CHUNK = 24 << 20


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain segment of one chunk, in batches of 16 KiB."""
    path = tmp_path_factory.mktemp("log") / "t-0"
    keys = [None if i % 7 == 0 else b"key%08d" % i for i in range(180_000)]
    kolumn.write(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array([b"v" * 100] * 180_000, pa.binary())}), path)
    assert 20 << 20 < sum(one.stat().st_size for one in path.glob("*.log")) < CHUNK
    return path


@pytest.fixture
def locked() -> Iterator[list[int]]:
    """Sizes of the blocks that are page-locked."""
    sizes: list[int] = []
    recycle.lock_by(lambda size: sizes.append(size) or np.empty(size, np.uint8))
    yield sizes
    recycle.lock_by(None)


CALLS = ("waits", "uploads", "allocations", "memsets", "scans", "launches")


@pytest.mark.parametrize(
    ("read", "more", "most"),
    [
        # Waits: for checksums and fields with the sizes of columns, and for the columns.
        (kolumn.read, {"backend": "gpu"}, (2, 3, 12, 1, 4, 10)),
        (kolumn.read, {"backend": "gpu", "include_headers": True}, (3, 3, 18, 3, 9, 11)),
        (kolumn.read, {"backend": "gpu", "columns": ["offset"]}, (2, 3, 8, 1, 0, 4)),
        # Where columns stay: for checksums and fields, for the sizes of columns, and for the columns.
        (resident, {"payload": "string", "columns": ["key", "value", "offset", "timestamp"]}, (3, 3, 15, 1, 5, 12)),
    ],
    ids=["columns", "with headers", "offsets", "columns that stay"],
)
def test_a_chunk(read: Any, more: dict[str, Any], most: tuple[int, ...], log: Path, device: Emulated) -> None:
    """One more, since the first one sends tables that stay."""
    for _ in range(2):
        device.asked.clear()
        read(log, threads=1, chunk_bytes=CHUNK, **more)
    assert {*device.asked} <= {*CALLS}
    assert all(device.asked[name] <= count for name, count in zip(CALLS, most, strict=True)), device.asked


@pytest.mark.parametrize(("memory", "rooms"), [(16 << 30, 1), (256 << 20, 8)], ids=["large pool", "small pool"])
def test_compressed_chunks(memory: int, rooms: int, device: Emulated, tmp_path: Path) -> None:
    """Frames that do not say how large they are are decompressed by one call, and decoded together, where the pool has room for them."""
    records, frames = b"".join(bytes([38, 0, 0, 2 * i, 1, 26]) + b"thirteen byte" + bytes([0]) for i in range(50)), 1_000
    stream = zstandard.ZstdCompressor().compressobj()
    packed = stream.compress(records) + stream.flush()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(raw_batch(packed, 50, base_offset=50 * i, attributes=4, last_delta=49) for i in range(frames)))
    device.memory = memory
    table = kolumn.read(path, backend="gpu", threads=1, chunk_bytes=CHUNK)
    assert table["offset"].to_pylist() == list(range(50 * frames))
    # A frame may need 128 KiB.
    assert (device.launched["inflate"], device.launched["fields"]) == (rooms, rooms)


def test_frames_are_decompressed_once(device: Emulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those of a first chunk, whose ratio of 30 nobody knows, and which is more than a thread may have in memory."""
    given, inflate = list[int](), device.inflate
    monkeypatch.setattr(device, "inflate", lambda *how: given.append(len(how[2])) or inflate(*how))
    rng, batches, records = random.Random(0), 250, 40
    values = [rng.randbytes(100) + bytes(3000) for _ in range(batches * records)]
    rows = [Record(i, None, value, 0) for i, value in enumerate(values)]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batch(rows[i : i + records], codec=ZSTD) for i in range(0, len(rows), records)))
    assert kolumn.read(path, backend="gpu", threads=1, chunk_bytes=1 << 20)["value"].to_pylist() == values
    # A chunk of 1 MiB becomes 30, and a thread may have 8 of them.
    assert given[0] * records * 3100 > 2 * (8 << 20)
    assert batches < sum(given) <= batches + given[0]


@pytest.mark.parametrize("binary", ["contiguous", "view"])
def test_tables_are_not_page_locked(binary: Literal["contiguous", "view"], log: Path, device: Emulated, locked: list[int]) -> None:
    """Chunks are, on their way; nothing of them is left when the read is over, while its table lives."""
    before = set(recycle._locked.used)
    table = kolumn.read(log, backend="gpu", binary=binary, threads=2, chunk_bytes=2 << 20)
    assert locked
    gc.collect()
    assert set(recycle._locked.used) <= before
    assert table.num_rows == 180_000


_weighing = threading.RLock()


class Weighed(Emulated):
    """Knows how much there is of something, here of bytes, and how much there was at most."""

    now = most = 0

    def changed(self, by: int) -> None:
        with _weighing:
            self.now += by
            self.most = max(self.most, self.now)

    def pieces(self, sizes: Sequence[int], zeros: bool = False) -> list[HostMemory]:
        found = super().pieces(sizes, zeros)
        for memory in found:
            self.changed(memory.size)
            weakref.finalize(memory, self.changed, -memory.size)
        return found


class Staging(Weighed):
    """Columns come back through page-locked blocks, as on a GPU; threads that empty these meet, and are counted."""

    pieces = Emulated.pieces

    def collected(self, wanted: Sequence[tuple[HostMemory, int, int]]) -> Callable[[], list[Any]]:
        staged = Staged([size for _, size, _ in wanted])
        for (memory, _, start), (to, size) in zip(wanted, staged.places, strict=True):
            ctypes.memmove(to, memory.address + start, size)
        self.changed(1)

        def emptied() -> list[Any]:
            time.sleep(0.05)
            self.changed(-1)
            return staged.arrays()

        return emptied


def test_page_locked_blocks_are_used_again(log: Path, locked: list[int]) -> None:
    """However many threads there are: to lock a block takes longer than what it is for."""
    with current.using(device := Staging(run_loops)):
        for _ in range(2):
            kolumn.read(log, backend="gpu", threads=16, chunk_bytes=1 << 20)
    assert 1 < device.most <= EMPTIED
    assert device.most < sum(size > 1 << 19 for size in locked) <= LOADED + EMPTIED


def test_turns_bound_the_memory_of_a_device(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that wait for the consumer have nothing on the device: twelve threads take as much as there are turns.

    Of those that wait for their turn few are in the memory of the host.
    """
    most, load, leave, whole = {}, Chunk.loaded, DeviceChunk.__exit__, DeviceChunk._leave
    there, waiting = set(), []

    def loaded(chunk: Chunk, *how: Any, **more: Any) -> Chunk:
        there.add(chunk.origin)
        waiting.append(len(there))
        return load(chunk, *how, **more)

    def left(chunk: DeviceChunk, *error: object) -> None:
        there.discard(chunk.origin)
        leave(chunk, *error)

    monkeypatch.setattr(Chunk, "loaded", loaded)
    monkeypatch.setattr(DeviceChunk, "__exit__", left)
    monkeypatch.setattr(DeviceChunk, "_leave", lambda chunk: (there.discard(chunk.origin), whole(chunk)))
    for threads in (1, 12):
        with current.using(device := Weighed(run_loops)), kolumn.scan(log, backend="gpu", threads=threads, chunk_bytes=1 << 20) as reader:
            assert sum(batch.num_rows for batch in reader) == 180_000
        most[threads] = device.most
        # What threads keep: the tables of checksums.
        assert device.now < 13 * 20_000
    assert 1 < most[12] / most[1] < AT_A_TIME + 0.5
    assert 1 < max(waiting) <= LOADED


def test_an_error_waits_for_the_device(log: Path, device: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies to it may be under way, and the memory of the host that they read is used again."""
    waited: list[int] = []

    def fails(chunk: DeviceChunk, entries: Any) -> None:
        waited.append(device.asked["waits"])
        raise RuntimeError("in the middle of a chunk")

    monkeypatch.setattr(DeviceChunk, "check", fails)
    with pytest.raises(RuntimeError, match="in the middle of a chunk"):
        kolumn.read(log, backend="gpu", threads=1)
    assert device.asked["waits"] == waited[0] + 1


def test_a_chunk_that_does_not_get_there_leaves_its_turn(log: Path, device: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("upload", "empty"):
        with monkeypatch.context() as patch:
            patch.setattr(device, name, Mock(side_effect=KolumnError("the GPU has no room")))
            with pytest.raises(KolumnError, match="no room"):
                kolumn.read(log, backend="gpu", threads=1)
        assert (chunk._turns._value, chunk._loaded._value) == (AT_A_TIME, LOADED)


def test_others_have_the_device_while_columns_are_made(log: Path) -> None:
    """A chunk leaves its turn, and its memory on the device, as soon as its bytes are on their way to ordinary memory."""
    seen: list[tuple[int, int]] = []

    class Watched(Weighed):
        def collected(self, wanted: Any) -> Callable[[], list[Any]]:
            made = super().collected(wanted)

            def last() -> list[Any]:
                seen.append((chunk._turns._value, self.now))
                return made()

            return last

    with current.using(device := Watched(run_loops)):
        assert kolumn.read(log, backend="gpu", threads=1, chunk_bytes=1 << 20).num_rows == 180_000
    assert len(seen) > 3
    # The tables of checksums stay.
    assert {turns for turns, _ in seen} == {AT_A_TIME}
    assert max(there for _, there in seen) < 20_000 < device.most
