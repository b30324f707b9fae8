"""The interpreter of Protobuf becomes machine code for a GPU: a thread writes a message, with neither a stack frame nor spills."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

import kolumn.encodings.compiled  # noqa: F401
from kolumn.encodings import protobuf
from kolumn.encodings.columns import ColumnTables
from kolumn.encodings.protobuf import ProtobufProgram
from kolumn.kernels import build
from kolumn.kernels.machine.kernel import KERNELS, thread_per_item
from kolumn.machine_code.words import load64, store64

pytest.importorskip("nvidia.cu13", reason="compilers for CUDA: pip install 'kolumn[dev]'")


class Tables(NamedTuple):
    """Addresses of what a thread needs, and the number of levels."""

    columns: int
    levels: int
    counts: int
    fills: int
    cursors: int
    stride: int
    level_count: int
    messages: int
    fields: int
    direct: int
    symbols: int
    frames: int
    at: int
    codes: int


@thread_per_item(Tables)
def write_one(i: int, a: Tables) -> None:
    target = ColumnTables(a.columns, a.levels, a.counts + 8 * i, a.fills, a.cursors, a.stride, a.level_count)
    program = ProtobufProgram(a.messages, a.fields, a.direct, a.symbols, a.frames + protobuf.FRAMES * i)
    place = a.at + 16 * i
    store64(a.codes + 8 * i, protobuf.write_message(target, program, i, load64(place), load64(place + 8)))


# It does not ship, and other tests ask for all kernels that do.
del KERNELS[write_one.name]


def test_the_interpreter_compiles_for_a_gpu(tmp_path: Path) -> None:
    source = tmp_path / "kernel.ptx"
    source.write_text(build.ptx(write_one, build.OLDEST))
    said = build.cubin(source, tmp_path / "kernel.cubin", build.ARCHITECTURES[0])
    assert re.findall(r"(\d+) bytes (?:stack frame|spill \w+)", said) == ["0"] * 3
