"""A worker that does what a test wrote, in place of the connector's own: ``python scripted_worker.py``.

The text of a split, or that of the work where there is no split, is Python with a function `script`, which has the conversation about a
device by a `Jvm`, and what is `given` to it.
"""

import json
import os
import struct
import sys
from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa

SPARE = 64
"""Bytes after the last one of each piece of device memory."""


class Stopped(Exception):  # noqa: N818 (it is no error)
    """The JVM wants no more."""


class Jvm:
    """The other end. Each method is a command. ``question``: what was asked; ``given``: what the test has for the script."""

    def __init__(self, question: dict[str, Any], given: dict[str, Any]) -> None:
        self.question, self.given = question, given

    def say(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def frame(self, command: str, payload: bytes = b"") -> None:
        self.say(struct.pack(">ci", command.encode(), len(payload)) + payload)

    def received(self, size: int) -> bytes:
        found = sys.stdin.buffer.read(size)
        if len(found) < size:
            sys.exit()
        return found

    def answer(self, size: int) -> bytes:
        status = self.received(1)
        if status == b"S":
            raise Stopped
        assert status == b"O", status
        return self.received(size)

    def allocate(self, size: int, zeros: bool = False) -> int:
        self.frame("A", struct.pack(">qb", size, zeros))
        (address,) = struct.unpack(">q", self.answer(8))
        assert address % 256 == 0
        return int(address)

    def free(self, address: int) -> None:
        self.frame("F", struct.pack(">q", address))

    def map(self, number: int, descriptor: int, size: int) -> None:
        self.frame("M", struct.pack(">iiq", number, descriptor, size))

    def drop(self, number: int) -> None:
        self.frame("D", struct.pack(">i", number))

    def upload(self, target: int, data: bytes) -> None:
        self.frame("U", struct.pack(">q", target) + data)

    def copy(self, target: int, block: int, offset: int, size: int) -> None:
        self.frame("C", struct.pack(">qiqq", target, block, offset, size))

    def copy_from_a_block(self) -> None:
        """Say what leaves device memory, a block that is page-locked, and a table."""
        memory = self.allocate(100)
        number, descriptor = block(b"0123456789")
        self.map(number, descriptor, 10)
        self.copy(memory, number, 0, 10)
        self.table(pa.record_batch({"x": pa.array([1, 2])}))

    def download(self, *pieces: tuple[int, int]) -> bytes:
        self.frame("G", struct.pack(">i", len(pieces)) + b"".join(struct.pack(">qq", *piece) for piece in pieces))
        return self.answer(sum(size for _, size in pieces))

    def kernel(self, number: int, name: str, image: bytes) -> None:
        self.frame("K", struct.pack(">ii", number, len(name)) + name.encode() + image)

    def launch(self, number: int, grid: int, block: int, *arguments: int) -> None:
        self.frame("L", struct.pack(f">iii{len(arguments)}q", number, grid, block, *arguments))

    def running_sum(self, address: int, items: int, width: int) -> None:
        self.frame("R", struct.pack(">qqi", address, items, width))

    def wait(self) -> None:
        self.frame("Y")
        self.answer(0)

    def rest(self) -> None:
        self.frame("W")

    def codecs(self, path: str) -> None:
        self.frame("N", path.encode())

    def temporary(self, kind: int, blocks: int, largest: int, total: int) -> int:
        self.frame("T", struct.pack(">iqqq", kind, blocks, largest, total))
        return int(struct.unpack(">q", self.answer(8))[0])

    def inflate(self, kind: int, *numbers: int) -> int:
        self.frame("I", struct.pack(">i9q", kind, *numbers))
        return int(struct.unpack(">i", self.answer(4))[0])

    def end(self, **metrics: object) -> None:
        self.frame("E", json.dumps(metrics).encode())

    def fail(self, error: str) -> None:
        self.frame("X", json.dumps({"error": error}).encode())

    def table(self, batch: pa.RecordBatch) -> None:
        """Upload the columns and describe them."""
        columns = [self.column(column) for column in batch.columns]
        self.frame("B", struct.pack(">ii", batch.num_rows, len(columns)) + b"".join(columns))

    def column(self, array: pa.Array) -> bytes:
        """An array, which begins where its buffers do, is uploaded: its description."""
        assert array.offset == 0
        rows, buffers, kind = len(array), array.buffers(), array.type
        data, children = None, []
        if pa.types.is_struct(kind):
            name, children = "struct", [self.column(array.field(i)) for i in range(kind.num_fields)]
        elif pa.types.is_list(kind):
            name, children = "list", [self.integers(buffers[1], rows + 1), self.column(array.values)]
        elif pa.types.is_binary(kind):
            size = len(buffers[2] or b"")
            name, children = "bytes", [self.integers(buffers[1], rows + 1), self.described("uint8", size, buffers[2])]
        elif pa.types.is_string(kind):
            name, data, children = "string", buffers[2], [self.integers(buffers[1], rows + 1)]
        elif pa.types.is_boolean(kind):
            name, data = "bool", array.fill_null(False).to_numpy(zero_copy_only=False).tobytes()
        else:
            name, data = _NAMES.get(str(kind)) or f"decimal{kind.bit_width}:{kind.scale}", buffers[1]
        return self.described(name, rows, data, array.null_count, buffers[0] if array.null_count else None, children)

    def integers(self, buffer: pa.Buffer, items: int) -> bytes:
        return self.described("int32", items, buffer if buffer is not None and buffer.size else bytes(4 * items))

    def described(
        self, kind: str, rows: int, data: Any, nulls: int = 0, bitmap: Any = None, children: Sequence[bytes] = ()
    ) -> bytes:  # fmt: skip
        places = [place for one in (data, bitmap) for place in self.put(one)]
        head = struct.pack(f">i{len(kind)}s", len(kind), kind.encode())
        return head + struct.pack(">6qi", rows, nulls, *places, len(children)) + b"".join(children)

    def put(self, data: Any) -> tuple[int, int]:
        """Where bytes are now, and how many."""
        if data is None:
            return 0, 0
        found = bytes(data)
        address = self.allocate(len(found) + SPARE)
        self.upload(address, found)
        return address, len(found)


_NAMES = {
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "uint8": "uint8", "float": "float32", "double": "float64",
    "timestamp[us, tz=UTC]": "timestamp", "date32[day]": "date32",
}  # fmt: skip
_numbers = count()


def block(data: bytes) -> tuple[int, int]:
    """A memfd with these bytes, as long as this process lasts: its number and its descriptor."""
    descriptor = os.memfd_create("scripted")
    os.write(descriptor, data)
    return next(_numbers), descriptor


kept: dict[str, Any] = {}
"""What a script leaves for the next one of this process."""


def _serve() -> None:
    secret = sys.stdin.buffer.read(16)
    _, probe = block(secret)
    sys.stdout.buffer.write(secret + struct.pack(">i", probe))
    sys.stdout.buffer.flush()
    while True:
        head = sys.stdin.buffer.read(4)
        if len(head) < 4:
            return
        (size,) = struct.unpack(">i", head)
        question = json.loads(sys.stdin.buffer.read(size))
        names = globals() | {"given": {}}
        exec(question["split"] or question["work"], names)
        jvm = Jvm(question, names["given"])
        try:
            names["script"](jvm)
        except Stopped:
            jvm.end()


if __name__ == "__main__":
    _serve()
