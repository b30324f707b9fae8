"""What is larger than memory, in temporary files: the last offsets of keys, and rows of a table.

The files are in the machine's folder for temporary files (``TMPDIR``). They have no names there, so nothing is left of them, however the
process ends.
"""

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import Int64s
from kolumn.core.errors import StorageError
from kolumn.writers.last_offsets import LatestOffsets

KEYS_BYTES = 128 << 20  # what distinct keys take, from which on they are in files; up to three times as much while they grow
ROWS_BYTES = 64 << 20  # bytes of a table that stay in memory
_BITS = 4  # of a key's hash that choose its file, on each level others
_LEVELS = 64 // _BITS
_ROWS = 1 << 16  # keys that are distributed at a time
_OF_KEYS = pa.schema([("key", pa.binary()), ("offset", pa.int64())])


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = tempfile.gettempdir()
        raise StorageError(
            f"{place}: a temporary file cannot be written: {error.strerror or error}. TMPDIR names another folder"
        ) from error


def _file() -> Any:
    return tempfile.TemporaryFile(prefix="kolumn-")


class SpilledOffsets:
    """As `LatestOffsets`, of any number of keys: in files by their hashes once they take `KEYS_BYTES`. ``scope`` closes these."""

    def __init__(self, scope: ExitStack, level: int = 0) -> None:
        self._latest, self._level, self._scope = LatestOffsets(), level, scope
        self._files: list[Any] = []
        self._writers: list[Any] = []

    def add(self, keys: pa.Array, offsets: pa.Array) -> None:
        self._latest.add(keys, offsets)
        if self._latest.nbytes > KEYS_BYTES and self._level < _LEVELS:
            with _explained():
                self._spill()

    def _spill(self) -> None:
        if not self._files:
            self._files = [self._scope.enter_context(_file()) for _ in range(1 << _BITS)]
            self._writers = [pa.ipc.new_stream(file, _OF_KEYS) for file in self._files]
        for batch in self._latest.table().to_batches(max_chunksize=_ROWS):
            # Python's hash of bytes has a secret seed, so that nobody can make keys that are all in one file.
            hashes = np.fromiter(map(hash, batch["key"].to_pylist()), np.int64, batch.num_rows)
            places = (hashes >> (_BITS * self._level)) & ((1 << _BITS) - 1)
            for place in np.unique(places).tolist():
                self._writers[place].write_batch(batch.filter(pa.array(places == place)))
        self._latest = LatestOffsets()

    def offsets(self) -> Iterator[Int64s]:
        """The last offset of each key, those of some keys at a time, sorted; once."""
        if not self._files:
            yield self._latest.offsets()
            return
        with _explained():
            self._spill()
            for writer in self._writers:
                writer.close()
        for file in self._files:
            part = SpilledOffsets(self._scope, self._level + 1)
            with file:
                file.seek(0)
                for batch in pa.ipc.open_stream(file):
                    part.add(batch["key"], batch["offset"])
            yield from part.offsets()


def sorted_in_file(parts: Iterator[Int64s]) -> Int64s:
    """Numbers of all parts, which are sorted: one part as it is, more of them in a file that is mapped."""
    first = next(parts)
    second = next(parts, None)
    if second is None:
        return first
    with _explained(), _file() as file:
        for part in (first, second, *parts):
            file.write(part.tobytes())
        file.flush()
        mapped = np.memmap(file, np.int64, "r+") if file.tell() else np.empty(0, np.int64)
        mapped.sort()
        return mapped


class SpilledRows:
    """Batches that become one table: in memory, or in a file that is mapped once they take more than `ROWS_BYTES`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._held, self._bytes = schema, list[pa.RecordBatch](), 0
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> "SpilledRows":
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > ROWS_BYTES:
            with _explained():
                self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = _file()
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        for batch in self._held:
            self._writer.write_batch(batch)
        self._held, self._bytes = [], 0

    def table(self) -> pa.Table:
        if self._file is None:
            return pa.Table.from_batches(self._held, self._schema)
        with _explained():
            self._spill()
            self._writer.close()
            self._file.flush()
        # The table keeps the mapping, and that keeps the file.
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()
