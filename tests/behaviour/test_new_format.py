"""A new format is one file: a draft that is only in the test tree is read, checked, recovered after damage, and converted."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import struct, sys, zlib, gzip
from pathlib import Path
import kolumn
from kolumn.core.errors import CorruptBatchError
folder = Path(sys.argv[1])

def message(delta, key, value):
    body = struct.pack(">iqi", delta, 1700000000000 + delta, -1 if key is None else len(key)) + (key or b"") + value
    return struct.pack(">i", len(body)) + body

def entry(base, messages, codec=0):
    payload = b"".join(message(i, *one) for i, one in enumerate(messages))
    covered = struct.pack(">bbiq", 2, codec, len(messages), 1700000000099) + (gzip.compress(payload, mtime=0) if codec else payload)
    return struct.pack(">qiI", base, len(covered) + 4, zlib.crc32(covered)) + covered

def rows(first):
    return [(b"key %d" % i if i % 3 else None, b"value %d " % i * (i % 7)) for i in range(first, first + 10)]

log = folder / "topic-0"
log.mkdir()
entries = [entry(first, rows(first), int(first % 20 == 10)) for first in range(0, 60, 10)]
segment = log / f"{0:020}.log"
segment.write_bytes(b"".join(entries))

def expect(table, offsets):
    known = {first + i: one for first in range(0, 60, 10) for i, one in enumerate(rows(first))}
    assert table["offset"].to_pylist() == offsets, table["offset"].to_pylist()
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist())) == [known[offset] for offset in offsets]
    assert table["timestampMs"].to_pylist() == [1700000000000 + offset % 10 for offset in offsets]

options = dict(format="fifth", columns=("offset", "timestampMs", "key", "value"))
expect(kolumn.read(log, **options), list(range(60)))
expect(kolumn.read(log, start_offset=25, **options), list(range(25, 60)))
table = kolumn.batches(log, format="fifth")
assert table["baseOffset"].to_pylist() == list(range(0, 60, 10)) and table["codec"].to_pylist() == ["none", "gzip"] * 3
assert kolumn.verify(log, format="fifth").ok
assert kolumn.losses(source_format="fifth", format="kafka", magic=0) == ["LogAppendTime types", "timestamps"]
kolumn.convert(log, folder / "shipped", source_format="fifth")
expect(kolumn.read(folder / "shipped", columns=options["columns"]), list(range(60)))

# The second entry's length is damaged: the third one is found by its checksum.
data = bytearray(segment.read_bytes())
data[len(entries[0]) + 8 : len(entries[0]) + 12] = b"\\x00\\x7f\\x00\\x00"
segment.write_bytes(data)
expect(kolumn.read(log, errors="skip", **options), [*range(10), *range(20, 60)])
try:
    kolumn.read(log, **options)
except CorruptBatchError as error:
    assert error.position == len(entries[0])
else:
    raise AssertionError("no error")

from kit.emulated import Emulated, run_loops
from kolumn.kernels.machine import device
segment.write_bytes(b"".join(entries))
with device.using(Emulated(run_loops)):
    expect(kolumn.read(log, backend="gpu", **options), list(range(60)))
print("done")
"""


@pytest.mark.slow
def test_one_file_makes_a_format(tmp_path: object) -> None:
    environment = {**os.environ, "KOLUMN_FORMATS": "kit.fifth_draft", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
