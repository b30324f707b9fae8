"""Checksums of compiled code are compared with other libraries: each method, lengths around each block size, any alignment."""

import os
import random
import subprocess
import sys
import zlib
from typing import Any

import crc32c
import numpy as np
import pytest
from numba import njit

from kolumn.cpu_fallback.machine import checksum
from kolumn.cpu_fallback.machine import crc as chosen
from kolumn.cpu_fallback.machine.fold import folding, widest
from kolumn.cpu_fallback.machine.scalars import compiled
from kolumn.formats import crc
from kolumn.machine_code.deferred import apply

# Numba compiles functions of Kolumn here.
apply()

BYTES = np.frombuffer(random.Random(5).randbytes(70_000), np.uint8).copy()
LENGTHS = [*range(140), *range(250, 260), *range(500, 530), 1023, 1024, 4031, 16_384, 65_537]


@compiled
def both(buf: int, at: int, end: int) -> tuple[int, int]:
    return crc.crc32c(buf, at, end), crc.crc32(buf, at, end)


def test_lengths_and_alignments() -> None:
    for length in LENGTHS:
        for at in (0, 1, 6, 63):
            part = BYTES[at : at + length].tobytes()
            assert both(BYTES.ctypes.data, at, at + length) == (crc32c.crc32c(part), zlib.crc32(part)), (length, at)


@pytest.mark.parametrize("held", [bytes, bytearray, memoryview, lambda part: np.frombuffer(part, np.uint8)])
def test_of_what_python_holds(held: Any) -> None:
    for at in (0, 6, 99, 100):
        part = BYTES[:100].tobytes()
        found = checksum.crc32c(held(part), at), checksum.crc32(held(part), at)
        assert found == (crc32c.crc32c(part[at:]), zlib.crc32(part[at:]))


@pytest.mark.parametrize("kind", ["portable", "instruction", "fold"])
def test_every_way(kind: str) -> None:
    """The environment chooses the method when the module is imported. Code that was compiled for another method is not used."""
    script = (
        "import test_crc; test_crc.test_lengths_and_alignments()\n"
        "from kolumn.cpu_fallback.machine import crc, loops; print(crc.KIND, loops.version().rpartition('-')[2])"
    )
    environment = {**os.environ, "KOLUMN_CRC": kind, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, key = done.stdout.split()
    assert found == key
    assert found.startswith(kind) or found == ("instruction" if chosen.INSTRUCTION else "portable")


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("vectors", [1, 4])
@pytest.mark.parametrize("polynomial", [crc.CASTAGNOLI, crc.IEEE])
def test_folding(width: int, vectors: int, polynomial: int) -> None:
    """The returned vector has the same checksum as all bytes, by the tables in plain Python, with any initial register."""
    if width > widest():
        pytest.skip(f"this CPU multiplies no {width} bytes at once")
    fold = folding(width, vectors, polynomial)

    @njit
    def run(register: int, at: int, blocks: int) -> Any:
        return fold(register, at, blocks)

    table = {crc.CASTAGNOLI: crc.CRC32C, crc.IEEE: crc.CRC32}[polynomial]
    for blocks in (1, 2, 3, 7):
        for at in (0, 3):
            size = blocks * vectors * width
            left = np.array(run(0x12345678, BYTES.ctypes.data + at, blocks), np.int64)
            expected = crc.crc_bytes(table, 0x12345678, BYTES, at, at + size)
            assert crc.crc_bytes(table, 0, left.view(np.uint8), 0, width) == expected
