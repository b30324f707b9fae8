"""The independent reader, which is the reference for mutants, is compared with Kafka's own record classes.

Only the intended differences that are listed here are allowed.
"""

import os
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from kit import oracle
from kit.differential import make
from kit.encoder import sized32
from kit.fuzz import FIRST
from kit.java import NEEDS_JAVA

COUNT = int(os.environ.get("KOLUMN_JAVA_MUTANTS", "2000"))

pytestmark = [*NEEDS_JAVA, pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")]


def java(jars: str, scratch: Path, segments: list[bytes], crc: bool) -> list[str]:
    command = ["java", "-Xmx1g", "-cp", jars, str(Path(__file__).with_name("Reader.java")), str(scratch), "crc" if crc else "nocrc"]
    data = b"".join(struct.pack(">i", len(segment)) + segment for segment in segments)
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().splitlines()


def ours(segment: oracle.Segment) -> str:
    """The same line, made by the independent reader."""
    entries = [
        f"{e.position} {e.size} error {e.error}|" if e.error else f"{e.position} {e.size} rows {rows(e.rows)}|" for e in segment.entries
    ]
    return "".join(entries) + ("error " + segment.stop if segment.stop == "bad length" else "end")


def rows(found: list[oracle.Row]) -> str:
    digest = 0
    for row in found:
        fields = [struct.pack(">qqi", row.offset, row.timestampMs, row.timestampType), sized32(row.key), sized32(row.value)]
        fields += [struct.pack(">i", len(row.headers)), *(sized32(key.encode()) + sized32(value) for key, value in row.headers)]
        flags = (row.isTransactional, row.isControl, row.magic)
        fields.append(struct.pack(">qhii??b", row.producerId, row.producerEpoch, row.sequence, row.leaderEpoch, *flags))
        digest = zlib.crc32(b"".join(fields), digest)
    return f"{len(found)} {digest}"


def difference(line: str, segment: oracle.Segment, data: bytes) -> str | None:
    """The first entry that Java reads differently, except for intended differences."""
    *theirs, their_end = line.split("|")
    *mine, my_end = ours(segment).split("|")
    for java_says, we_say, entry in zip(theirs, mine, segment.entries, strict=False):
        same = java_says.split(" error ")[0] == we_say.split(" error ")[0]
        if not same and not _meant(java_says, entry, data[entry.position : entry.position + entry.size]):
            return f"Java: {java_says}; expected {we_say}"
    if len(theirs) != len(mine):
        return f"Java: {len(theirs)} entries; expected {len(mine)}"
    # Java reads the zeros of a preallocated tail as an entry of size 0.
    if their_end.startswith("error") != my_end.startswith("error") and segment.stop != "zeros":
        return f"Java ends with {their_end}; expected {my_end}"
    return None


def _meant(java_says: str, entry: oracle.Entry, data: bytes) -> bool:
    """Whether a difference is intended: the reader is stricter than Java, or Java ran out of memory on a hostile count."""
    if entry.error is None:
        return "OutOfMemoryError" in java_says
    magic, codec = data[16], data[22 if data[16] == 2 else 17] & 7
    wrapper, zstd, snappy = magic < 2 and codec != 0, codec == 4, codec == 2
    return (
        entry.error.startswith(("magic", "Record batch is corrupted: smaller than a header", "offset delta outside"))
        or (magic == 2 and data[57:61] == bytes(4))
        or (wrapper and entry.error.startswith(("inner magic", "Record is corrupt: crc")))
        or (zstd and ("source" in entry.error or "ends too early" in entry.error))
        or (snappy and "header of a concatenated block" in entry.error)
    )


@pytest.fixture(scope="module")
def mutants() -> dict[int, bytes]:
    return {seed: make(seed)[1].data for seed in range(FIRST, FIRST + COUNT)}


@pytest.mark.parametrize("crc", [True, False])
def test_independent_reader(jars: str, mutants: dict[int, bytes], tmp_path: Path, crc: bool) -> None:
    found, lines = [], java(jars, tmp_path / "segment.log", [*mutants.values()], crc)
    for (seed, data), line in zip(mutants.items(), lines, strict=True):
        if text := difference(line, oracle.read(data, crc), data):
            found.append(f"seed {seed}: {text}")
    assert not found, "\n".join([*found[:50], "replay in tests/: python -m kit.differential SEED"])
