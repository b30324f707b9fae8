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

from kolumn.core.deferred import apply
from kolumn.cpu_fallback.machine import checksum
from kolumn.cpu_fallback.machine import crc as isal
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.formats import crc

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


@compiled
def of_words(a: int, b: int, c: int, d: int, e: int) -> int:
    return crc.crc32c_of_words(a, b, c, d, e)


def test_words() -> None:
    """Of compiled code, and of Python, to which a word may be signed or not."""
    for at in range(100):
        words = BYTES[40 * at : 40 * at + 40].view("<i8").tolist()
        expected = crc32c.crc32c(BYTES[40 * at : 40 * at + 36].tobytes())
        assert of_words(*words) == crc.crc32c_of_words(*words) == expected
        assert crc.crc32c_of_words(*(word % 2**64 for word in words)) == expected


def test_any_place() -> None:
    assert isal.link(), "what is tested is ISA-L"
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


def test_without_isal_tables_are_used() -> None:
    script = "from kolumn.cpu_fallback.machine import crc; crc.library = print; import test_crc; test_crc.test_lengths_and_alignments()"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    # Settings of Numba's: code that is kept for another processor is not used.
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
