"""Checksums of compiled code are compared with other libraries: each method, lengths around each block size, any alignment."""

import os
import random
import subprocess
import sys
import zlib
from itertools import pairwise
from typing import Any

import crc32c
import numpy as np
import pytest
from numba import njit

from kolumn.cpu_fallback.machine import checksum, processor
from kolumn.cpu_fallback.machine import crc as chosen
from kolumn.cpu_fallback.machine.beside import moving, side_by_side
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc
from kolumn.formats.machine_code.deferred import apply

# Numba compiles functions of Kolumn here.
apply()

BYTES = np.frombuffer(random.Random(5).randbytes(70_000), np.uint8).copy()
LENGTHS = [*range(140), *range(250, 260), *range(500, 530), 1023, 1024, *range(1100, 1360), 4031, *range(16_380, 16_390), 65_537]
"""Around the sizes from which on another way is taken, and those of its blocks and turns."""


@compiled
def both(buf: int, at: int, end: int) -> tuple[int, int]:
    return crc.crc32c(buf, at, end), crc.crc32(buf, at, end)


def test_lengths_and_alignments() -> None:
    for length in LENGTHS:
        for at in (0, 1, 6, 63):
            part = BYTES[at : at + length].tobytes()
            assert both(BYTES.ctypes.data, at, at + length) == (crc32c.crc32c(part), zlib.crc32(part)), (length, at)


def test_around_each_turn() -> None:
    """The last turns of a block and the first ones of the next, one byte more or less; alignments take turns."""
    data = BYTES.tobytes()
    for turns in (2, 3, chosen.MOST - 1, chosen.MOST, chosen.MOST + 1, chosen.MOST + 2, 2 * chosen.MOST, 2 * chosen.MOST + 1):
        for more in (-9, -8, -7, -1, 0, 1, 4, 7, 8, 12, 63, 64, chosen.TURN - 1):
            at, length = (turns + more) % 64, turns * chosen.TURN + more
            assert both(BYTES.ctypes.data, at, at + length)[0] == crc32c.crc32c(data[at : at + length]), length


def test_any_place() -> None:
    rng, data = random.Random(11), BYTES.tobytes()
    for _ in range(3000):
        length = int(2 ** rng.uniform(0, 16))
        at = rng.randrange(len(data) - length)
        assert both(BYTES.ctypes.data, at, at + length)[0] == crc32c.crc32c(data[at : at + length]), (at, length)


@pytest.mark.parametrize("held", [bytes, bytearray, memoryview, lambda part: np.frombuffer(part, np.uint8)])
def test_of_what_python_holds(held: Any) -> None:
    for at in (0, 6, 99, 100):
        part = BYTES[:100].tobytes()
        assert checksum.crc32c(held(part), at) == crc32c.crc32c(part[at:])


@pytest.mark.parametrize("way", ["tables", "ISA-L"])
def test_every_way(way: str) -> None:
    """Without ISA-L tables are used; without the features of this CPU nothing but ISA-L is."""
    script = (
        "from kolumn.cpu_fallback.machine import crc; crc.library = print\n" if way == "tables" else ""
    ) + "import test_crc; test_crc.test_lengths_and_alignments(); print(test_crc.chosen.WIDTH, test_crc.chosen.link())"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["0", str(way == "ISA-L")]


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize(("vectors", "streams", "words"), [(2, 4, 2), (1, 3, 1), (4, 2, 4), (2, 1, 4)])
def test_both_at_the_same_time(width: int, vectors: int, streams: int, words: int) -> None:
    """The vector and the registers of the streams have the checksums of their parts, by the tables in plain Python."""
    if not processor.has({16: "pclmul", 32: "vpclmulqdq"}[width]) or not chosen.INSTRUCTION:
        pytest.skip(f"this CPU multiplies no {width} bytes at once, or has no instruction")
    take = side_by_side(width, vectors, streams, words)

    @njit
    def run(register: int, at: int, turns: int) -> Any:
        return take(register, at, turns)

    for turns in (2, 3, 4, 5, 9):
        for at in (0, 3):
            found = np.array(run(0x12345678, BYTES.ctypes.data + at, turns), np.int64)
            bounds = at + turns * np.array([0, *(vectors * width + k * 8 * words for k in range(streams + 1))])
            starts = [0x12345678, *streams * [0]]
            expected = [
                crc.crc_bytes(crc.CRC32C, start, BYTES, *part) for start, part in zip(starts, pairwise(bounds.tolist()), strict=True)
            ]
            folded = crc.crc_bytes(crc.CRC32C, 0, found[: width // 8].view(np.uint8), 0, width)
            assert [folded, *found[width // 8 :].tolist()] == expected


@pytest.mark.parametrize(("size", "most"), [(1, 40), (16, 9), (344, 3)])
def test_moving(size: int, most: int) -> None:
    """A register is moved over zeros by a multiplication: the sum of several words is that of their registers."""
    if not processor.has("pclmul"):
        pytest.skip("this CPU does not multiply without carry")
    move = moving(size, most)

    @njit
    def run(register: int, count: int) -> int:
        return move(register, count)

    zeros = np.zeros(size * most + 8, np.uint8)
    for count in range(most + 1):
        for register in (0, 1, 0x80000000, 0xFFFFFFFF, 0x12345678):
            word = np.array([run(register, count) ^ run(0x9ABCDEF0, count)], np.int64).view(np.uint8)
            expected = crc.crc_bytes(crc.CRC32C, register ^ 0x9ABCDEF0, zeros, 0, size * count)
            assert crc.crc_bytes(crc.CRC32C, 0, word, 0, 8) == expected
