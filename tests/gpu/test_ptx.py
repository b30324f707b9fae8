"""Do the kernels as they are shipped, as PTX, return what the CPU returns, without touching what they must not touch?"""

import ctypes
import random
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import pytest
from numba.extending import register_jitable

import kolumn
from kit import redpanda
from kit.corpus import cases
from kit.device_columns import resident, to_arrow
from kit.draft_segments import FORMATS, Maker
from kit.emulated import Emulated, HiddenError, HostMemory, nothing_hidden, run_loops
from kit.encoder import LOG_APPEND_TIME, Record, batch, message, raw_batch, wrapper
from kit.fuzz import TURN
from kit.mutate import make_segment, mutate
from kit.outcome import COLUMNS, outcome
from kit.ptx import FaultError, Machine, shipped
from kit.source_tree import modules
from kit.wrong_records import WRONG
from kolumn.formats import crc, legacy, table, v2
from kolumn.formats.layout import Layout
from kolumn.formats.words import load64
from kolumn.kernels import check
from kolumn.kernels.build import load_all
from kolumn.kernels.columns.gather import Validity, gather, validity
from kolumn.kernels.fields import hop
from kolumn.kernels.fields.hop import WINDOW
from kolumn.kernels.machine import device
from kolumn.kernels.machine.image import OLDEST
from kolumn.kernels.machine.kernel import KERNELS, WARP, Kernel
from kolumn.kernels.machine.nvptx import ptx
from kolumn.kernels.values.passes import FlagBits, flag_bits

pytest.importorskip("nvidia.cu13", reason="compilers for CUDA: pip install '.[dev]'")
WAYS = {"a thread": (1, hop.LARGE, hop.LONG), "a warp": (hop.FEW, 1 << 40, 0), "a block": (hop.FEW, 0, 1 << 40)}
"""What each batch gets to find its records by: `FEW`, `LARGE` and `LONG` of `hop`."""
MUTANTS = 60
AVRO: list[dict[str, Any]] = [
    {"a": ["null", "bytes"], "b": "long", "c": "boolean"},
    {"a": {"type": "array", "items": ["null", "string"]}, "b": {"type": "fixed", "name": "f", "size": 3}},
]
"""Types of fields of values."""
OF_MESSAGES = {"measure_messages", "write_messages", "moments", "symbols"}
"""Kernels that `test_message_values.py` runs."""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    HostMemory.overrun.clear()
    with pytest.MonkeyPatch.context() as patch, Machine(races=True).watching() as one, nothing_hidden():
        # As on a small device: thousands of warps with nothing to do take long here.
        patch.setattr(check, "WARPS", 8)
        yield one
    assert not HostMemory.overrun


def go(way: str, patch: pytest.MonkeyPatch) -> None:
    """Let each batch get one of `WAYS`."""
    for name, value in zip(("FEW", "LARGE", "LONG"), WAYS[way], strict=True):
        patch.setattr(hop, name, value)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    go(request.param, monkeypatch)


def compare(machine: Machine, path: Any, **options: Any) -> None:
    with device.using(Emulated(machine.run)):
        one, two = (outcome(path, columns=COLUMNS, include_control=True, threads=1, backend=name, **options) for name in ("cpu", "gpu"))
    assert one == two if isinstance(one, str) or isinstance(two, str) else one.equals(two), (path, options)


def large_batches(path: Path) -> None:
    """Batches that do not fit a window of `hop_staged`, with records that do not either."""
    rng = random.Random(1)
    sizes = [0, 5, 9000, *(rng.choice([0, 5, 90, 4096]) for _ in range(12))]
    records = [Record(i, b"k%d" % i, rng.randbytes(size), 1000 + i) for i, size in enumerate(sizes)]
    path.write_bytes(batch(records[:9]) + batch(records[9:]))


def columns_by(how: Callable[[Kernel, int, Any], None], path: Path, ways: list[dict[str, Any]]) -> list[Any]:
    with device.using(Emulated(how)):
        return [[to_arrow(one).to_pylist() for table in resident(path, "string", **way) for one in table.columns] for way in ways]


def test_segments_of_brokers(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each segment goes by another way than at the commit before.
    for number, segment in enumerate(segment for case in cases() for segment in case.segments):
        go([*WAYS][(number + TURN) % len(WAYS)], monkeypatch)
        compare(machine, segment, errors="skip")


def test_batches_larger_than_a_window(way: None, machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    large_batches(path)
    compare(machine, path)
    data = bytearray(path.read_bytes())
    data[-9000] ^= 0xFF
    path.write_bytes(data)
    compare(machine, path, errors="skip", check_crcs=False)


@pytest.mark.parametrize("large", [(1 << 14) - 61, 1 << 14, 200_000, (1 << 20) + (1 << 15)])
def test_entries_that_are_checked_in_slices(large: int, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both checksums, as they are and with one bit wrong in any slice."""
    monkeypatch.setattr(check, "WARPS", 132 * 48)
    path, rng = tmp_path / "a.log", random.Random(large)
    entries = [batch([Record(0, b"k", rng.randbytes(large), 0)]), message(1, Record(1, b"k", rng.randbytes(large), 0)), batch([Record(2)])]
    path.write_bytes(b"".join(entries))
    compare(machine, path, errors="skip")
    for place in [25, large // 2, rng.randrange(30, large), large + 50, len(entries[0]) + 20, len(entries[0]) + rng.randrange(30, large)]:
        data = bytearray(b"".join(entries))
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        compare(machine, path, errors="skip")
    assert machine.ran["join"]


def test_checksums_of_redpanda(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The swapped header is in the register before the first byte, in a warp for each batch and in slices."""
    monkeypatch.setattr(check, "WARPS", 132 * 48)
    path, rng = tmp_path / "a.log", random.Random(5)
    for sizes in ((0, 1, 2, 3, 4, 5, 60, 127, 128, 129), (0, 200_000)):
        entries = [redpanda.of_kafka(batch([Record(i, None, rng.randbytes(size), i)], producer_id=7 << i)) for i, size in enumerate(sizes)]
        entries.append(redpanda.of_kafka(batch([], base_offset=len(sizes))))
        for place in (None, len(entries[0]) + 62, sum(map(len, entries)) - 70):
            data = bytearray(b"".join(entries))
            if place is not None:
                data[place] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            compare(machine, path, format="redpanda", errors="skip")


@pytest.mark.parametrize("layout", [legacy.LAYOUT, v2.LAYOUT], ids=lambda one: one.name)
def test_slices_of_large_entries(layout: Layout, machine: Machine) -> None:
    """Up to 2 GiB, of zeros after the first slice: the others add nothing then. So only what the first one reads is in memory."""
    rng, at = random.Random(1), 5
    crc_of, polynomial = (crc32c.crc32c, crc.CASTAGNOLI) if layout.castagnoli else (zlib.crc32, crc.IEEE)
    start = at + layout.crc_from
    for count in (1 << 12, 1 << 18, (1 << 18) + (1 << 12), 5 << 18, (1 << 24) - check.SLICE_ROWS):
        slices, read = count // check.SLICE_ROWS, check.ROW * check.SLICE_ROWS
        data, end = rng.randbytes(read - start), count * check.ROW - rng.randrange(check.ROW)
        moved = crc.power_of_x(8 * (end - read), polynomial)
        right = crc.multiply(crc_of(data) ^ 0xFFFFFFFF, moved, polynomial) ^ 0xFFFFFFFF
        with device.using(Emulated(machine.run)):
            runtime = device.runtime()
            held, shares = runtime.upload(np.frombuffer(rng.randbytes(start) + data, np.uint8)), runtime.zeros(4 * slices)
            tables, bad = runtime.upload(check.tables()), runtime.empty(4)
            for claimed in (right, right ^ 1):
                row = np.zeros(table.WIDTH, np.int64)
                row[[table.POSITION, table.SIZE, table.CRC, table.CRC_FROM]] = at, end - at, claimed, layout.crc_from
                row[table.LAYOUT] = layout.number
                entry = runtime.upload(row)
                args = check.Check(entry.address, held.address, tables.address, bad.address, slices, shares.address)
                runtime.launch(check.check, 1, args)
                runtime.launch(check.join, 1, args)
                assert bool(runtime.download(bad, 4).any()) == (claimed != right)


@pytest.mark.parametrize("sizes", [[100], [5], [2000], [9000], [100, 101], [60, 3000], [1, 2, 8000, 70], [16000]], ids=str)
def test_records_of_any_length(sizes: list[int], way: None, machine: Machine, tmp_path: Path) -> None:
    """Lengths of one byte, two, and three, alike and not: a warp guesses that they are alike, and where the first of a slice begins."""
    path, rng = tmp_path / "a.log", random.Random(1)
    for chosen in ([sizes[i % len(sizes)] for i in range(60)], [rng.choice(sizes) for _ in range(60)], [rng.choice(sizes)] * 59 + [7]):
        path.write_bytes(batch([Record(i, None, bytes(size), 0) for i, size in enumerate(chosen)]))
        compare(machine, path)


@pytest.mark.parametrize("large", [False, True], ids=["short", "long"])
def test_chains_that_are_broken(large: bool, way: None, machine: Machine, tmp_path: Path) -> None:
    """Batches whose checksums are right, and whose records do not end where the batch does, or their fields where the record does."""
    path, count = tmp_path / "a.log", 41
    records = [Record(i, b"k", bytes(200 if large else 5), i) for i in range(count)]
    good, whole = batch(records), batch(records)[61:]
    first = len(whole) // count
    broken = {
        "bytes after the last record": raw_batch(whole + b"\0\0", count), "a record more": raw_batch(whole, count + 1),
        "a record less": raw_batch(whole, count - 1), "cut": raw_batch(whole[:-3], count),
        "cut, and records more": raw_batch(whole[:-3], count + 3),
        "a negative length": raw_batch(whole[:first] + b"\x09" + whole[first + 1 :], count),
        "a length of six bytes": raw_batch(whole[:first] + b"\xff" * 6 + whole[first + 6 :], count),
        "an empty record before the first": raw_batch(b"\0" + whole, count + 1),
        "a header without a value": raw_batch(b"\x12\0\0\0\1\1\2\4kk", 1), "no records": raw_batch(whole, 0),
        "fewer than none": raw_batch(whole, -3 * count),
    }  # fmt: skip
    for data in broken.values():
        path.write_bytes(good + data + good)
        for errors in ("skip", "raise"):
            compare(machine, path, errors=errors)


def test_a_record_more_than_the_last_window_has(way: None, machine: Machine, tmp_path: Path) -> None:
    """The payload of the second batch, of the last warp of a block, ends where its window does: a length would begin there."""
    first = batch([Record(0, None, bytes(7), 0)])
    second = batch([Record(1, None, bytes(5), 0), Record(2, None, bytes(2027), 0)])[61:]
    assert ((len(first) + 61) % 8, len(second)) == (0, WINDOW)
    path = tmp_path / "a.log"
    path.write_bytes(first + raw_batch(second, 3, base_offset=1))
    compare(machine, path, errors="skip")


@pytest.mark.parametrize("check_crcs", [True, False], ids=["checked", "unchecked"])
def test_inner_messages(check_crcs: bool, machine: Machine, tmp_path: Path) -> None:
    """Their checksums, what may be left over after them, and whose time they take: those without a time keep none under the broker's."""
    path = tmp_path / "a.log"
    records = [Record(i, b"k", b"value %d" % i, 1000 + i) for i in range(3)]
    for magic, inner, flags in ((0, 0, 0), (1, 1, 0), (1, 1, LOG_APPEND_TIME), (1, 0, LOG_APPEND_TIME)):
        # Of the last one the last byte of the value, which the outer checksum covers as it is.
        last = message(inner, Record(3, b"k", b"v", 1004))
        for garbage in (last, last[:-1] + b"\0", last + bytes(5), last[:-1]):
            path.write_bytes(wrapper(magic, records, 1, flags=flags, inner_magic=inner, garbage=garbage, offset=3))
            compare(machine, path, check_crcs=check_crcs, errors="skip")


def test_drafts_that_are_wrong(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for form, data, _, _ in WRONG:
        path.write_bytes(data)
        for check_crcs in (True, False):
            compare(machine, path, format=form, errors="skip", check_crcs=check_crcs)


def test_rows_after_the_last_one(machine: Machine) -> None:
    """A word of a bitmap has 32 rows: what is in memory after the last one is none."""
    with device.using(Emulated(machine.run)):
        runtime = device.runtime()
        for rows in (1, 31, 32, 33, 63):
            words, flags = -(-rows // 32), np.ones(64, np.uint8)
            flags[rows - 1 :] = 0
            held, lengths = runtime.upload(flags), runtime.upload(flags.astype(np.int32) - 1)
            bitmap, nulls, other, word, counts = runtime.pieces([4 * words, 4 * words, 4 * words, 4, 32])
            runtime.launch(validity, words, Validity(lengths.address, rows, bitmap.address, nulls.address))
            # Two words of each column, of which the second one has one row.
            columns = runtime.upload(np.array([[held.address, rows, other.address], [held.address + 63, 1, word.address]], np.int64))
            runtime.launch(flag_bits, 4, FlagBits(columns.address, 1, counts.address))
            assert runtime.download(counts, 32).view(np.int64).tolist() == [*np.bincount([(rows - 1) // 32], minlength=2), 1, 0]
            assert runtime.download(word, 4).view(np.uint32).tolist() == [2**32 - 2]
            for memory in (bitmap, other):
                bits = np.unpackbits(runtime.download(memory, 4 * words), bitorder="little")
                assert np.flatnonzero(bits == 0).tolist() == [rows - 1]
            assert runtime.download(nulls, 4 * words).view(np.int32).sum() == 1


def test_guesses_that_are_wrong(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values hold records, so that slices begin in what looks like the right place. Some of them begin no record at all."""
    go("a block", monkeypatch)
    path, ran = tmp_path / "a.log", machine.ran["hop_sliced"]
    inner = batch([Record(i, b"k", bytes([i % 251]) * (i % 40), i) for i in range(400)])[61:]
    for values in ([inner] * 3, [b"", inner, b"x"], [inner[7:], *[b"y" * 30] * 300], [b"z" * 20_000, b"", b"z" * 100]):
        path.write_bytes(batch([Record(i, None, value, 0) for i, value in enumerate(values)]))
        compare(machine, path)
    assert machine.ran["hop_sliced"] == ran + 4


def test_guesses_that_are_right(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each warp writes the rows of its slice then. Otherwise one warp writes all, which takes longer and changes no result."""
    go("a block", monkeypatch)
    path, rng, shared = tmp_path / "a.log", random.Random(1), list[bool]()

    def run(kernel: Kernel, n: int, args: Any) -> None:
        machine.run(kernel, n, args)
        if kernel.name == "hop_sliced":
            writers = [machine.pieces.writer(args.start + 4 * row) for row in range(load64(args.first + 8))]
            shared.append(len({one[1] // WARP for one in writers if one is not None}) > 1)

    # Records that begin where slices do, which are longer than a window (offsets from 64 on take a byte more); some in the last bytes,
    # which are no sixteenth; and of any length.
    whole = [[bytes(90 + (i < 64)) for i in range(1024)], [None] * 75, *([b"y" * rng.randrange(200) for _ in range(220)] for _ in range(6))]
    # In the last one a slice begins in a value that holds records.
    inner = batch([Record(i, b"k", b"y" * 30, i) for i in range(99)])[61:]
    for values in (*whole, [b"y" * 100, inner, *[b"y" * 33] * 300]):
        path.write_bytes(batch([Record(i, None, value, 0) for i, value in enumerate(values)]))
        with device.using(Emulated(run)):
            assert kolumn.read(path, columns=["value"], threads=1, backend="gpu")["value"].to_pylist() == values
    assert shared == [True] * len(whole) + [False]


def test_times_at_the_limits(machine: Machine, tmp_path: Path) -> None:
    path, most = tmp_path / "a.log", 2**63 - 1
    times = [edge + step for edge in (most // 1000, -(most // 1000), 0) for step in (-1, 0, 1)] + [most, -most - 1]
    path.write_bytes(b"".join(message(1, Record(i, b"k", b"v", time)) for i, time in enumerate(times)))
    compare(machine, path)
    with device.using(Emulated(machine.run)):
        (table,) = resident(path, "binary", columns=["timestamp"])
    expected = kolumn.read(path, columns=["timestamp"], backend="cpu")["timestamp"].cast(pa.int64()).to_pylist()
    assert None in expected
    assert to_arrow(table.columns[0]).cast(pa.int64()).to_pylist() == expected


def test_every_kernel_has_run(machine: Machine, tmp_path: Path) -> None:
    """On damaged segments of shipped formats, and drafts, in all of `WAYS`; on rows that are left out, and values that are parsed."""
    path = tmp_path / "a.log"
    ways: list[dict[str, Any]] = [{"columns": COLUMNS}]
    for seed in range(MUTANTS):
        rng = random.Random(seed)
        with pytest.MonkeyPatch.context() as patch:
            go(list(WAYS)[seed % 3], patch)
            path.write_bytes(mutate(rng, make_segment(rng)).data)
            compare(machine, path, errors=("raise", "skip")[seed // 3 % 2], check_crcs=seed % 4 > 0)
            form = FORMATS[seed % 4]
            path.write_bytes(b"".join(entry.data for entry in Maker(form, rng).segment(2)))
            compare(machine, path, format=form, errors="skip")
            if seed % 10 == 0:
                ways[0] |= {"format": form, "errors": "skip"}
                assert columns_by(machine.run, path, ways) == columns_by(run_loops, path, ways)
    rng = random.Random(0)
    ways = [{"columns": COLUMNS, "start_offset": 1}]
    for types in AVRO:
        fields = [{"name": name, "type": kind} for name, kind in types.items()]
        value: dict[str, Any] = {"value_format": "avro", "value_schema": {"type": "record", "name": "r", "fields": fields}}
        ways.append({"columns": ["value", "valueValid", "valueSchemaId"], **value})
    rows = [None, *(rng.randbytes(rng.choice([4, 11, 3, 0])) for _ in range(300))]
    kolumn.write(pa.table({"value": pa.array(rows, pa.binary())}), tmp_path / "values.log")
    assert columns_by(machine.run, tmp_path / "values.log", ways) == columns_by(run_loops, tmp_path / "values.log", ways)
    path.write_bytes(batch([Record(0, b"k", bytes(40_000), 0)]))
    compare(machine, path)
    assert set(machine.ran) | OF_MESSAGES == set(KERNELS)
    assert not set(machine.ran) & OF_MESSAGES


def test_every_kernel_is_built() -> None:
    """A kernel that `load_all` does not know is not shipped."""
    texts = "\n".join((Path(kolumn.__file__).parent / module).read_text() for module in modules())
    defined = re.findall(r"^@(?:thread_per_item|warp_per_item|blocks)\(.*\)\ndef (\w+)", texts, re.M)
    assert sorted(defined) == sorted(load_all())


# ---- Faults that are planted have to be found -----------------------------------------------------------------------------------


def changed(name: str, pattern: str, to: str, count: int = 0) -> Callable[[Kernel], str]:
    """The PTX of all kernels, in that of one of which something is replaced."""

    def text(kernel: Kernel) -> str:
        found = shipped(kernel)
        if kernel.name != name:
            return found
        made, places = re.subn(pattern, to, found, count=count)
        assert places, f"nothing to change in {name}"
        return made

    return text


def in_place_of(planted: Kernel) -> Callable[[Kernel], str]:
    return lambda kernel: ptx(planted, OLDEST) if kernel.name == planted.name else shipped(kernel)


@register_jitable
def _without_lane_7(i: int, lane: int, lanes: int, a: Any) -> None:
    if lane != 7:
        _gather(i, lane, lanes, a)


_gather = gather.body
PLANTED = {
    "misaligned": (
        changed("check", r"(and\.b64\s+%rd\d+, %rd\d+), -128;", r"\1, -127;"),
        r"check, thread \d+, PTX line \d+ `ld\.\w*\.?\w+ .*`: \d bytes at 0x[0-9a-f]+: not aligned",
    ),
    "no barrier of the warp": (
        changed("hop_staged", r"bar\.warp\.sync\s+-1;", ""),
        r"hop_staged, thread \d+, PTX line \d+ `.*`: \d bytes at 0x[0-9a-f]+: a race with thread \d+, line \d+ `",
    ),
    "no barrier of the block": (
        changed("check", r"bar\.sync\s+0;", "", 1),
        r"check, thread \d+, PTX line \d+ `st\.shared.*`: \d bytes at 0x[0-9a-f]+: a race with thread \d+, line \d+ `ld\.shared",
    ),
    "wrong lane": (
        changed("check", r"(shfl\..*), 16, 31, -1;", r"\1, 15, 31, -1;"),
        r"check: byte \d+ of .* is wrong, .*; thread \d+ wrote it, PTX line \d+ `st",
    ),
    "lanes that ask for too few": (
        changed("check", r"(shfl\..*), -1;", r"\1, 65535;", 1),
        r"check: a synchronisation of some lanes only: thread 0 waits at PTX line \d+ `shfl",
    ),
    "one item too many": (
        changed("sizes", r"setp\.ge\.s64", "setp.gt.s64", 1),
        r"sizes, thread \d+, PTX line \d+ `st\.b32 .*`: 4 bytes at 0x[0-9a-f]+: outside of every piece of memory",
    ),
    "dropped lane": (
        in_place_of(replace(gather, body=_without_lane_7)),
        r"gather: byte \d+ of .*; nobody wrote it\. Thread \d+ wrote byte \d+, PTX line \d+ `st",
    ),
}


def read_by_both(machine: Machine, path: Path) -> None:
    with device.using(Emulated(lambda kernel, n, args: run_both(machine, kernel, n, args))):
        kolumn.read(path, columns=["key", "value"], threads=1, backend="gpu")


@pytest.mark.parametrize("fault", PLANTED)
def test_planted(fault: str, tmp_path: Path) -> None:
    text, said = PLANTED[fault]
    path = tmp_path / "a.log"
    large_batches(path)
    with Machine(text, races=True).watching() as machine, pytest.raises(FaultError, match=said):
        read_by_both(machine, path)
    HostMemory.overrun.clear()


def test_a_good_batch_that_is_called_wrong(tmp_path: Path) -> None:
    """The CPU would decompress it, and return its rows."""
    path = tmp_path / "a.log"
    kolumn.write(pa.table({"value": pa.array([b"x"] * 9, pa.binary())}), path, codec="zstd")

    def run(kernel: Kernel, n: int, args: Any) -> None:
        run_loops(kernel, n, args)
        if kernel.name == "fields":
            ctypes.memset(args.bad, 1, 4)

    refused = pytest.raises(HiddenError, match=r"refused the batches at \[0\]")
    with device.using(Emulated(run)), nothing_hidden(), refused:
        kolumn.read(path, backend="gpu")


def test_nothing_is_found_without_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    large_batches(path)
    with Machine(races=True).watching() as machine:
        read_by_both(machine, path)
    assert {"check", "hop_staged", "gather", "sizes"} <= set(machine.ran)


def run_both(machine: Machine, kernel: Kernel, n: int, args: Any) -> None:
    """Launch a kernel twice on the same memory, by the loops and by the machine, which has to look for races.

    If a byte differs, the FaultError names who wrote it last, or who wrote the nearest byte before it in the same piece of memory.
    """
    before = [(address, ctypes.string_at(address, size)) for address, size in machine.pieces.writable()]
    run_loops(kernel, n, args)
    expected = [(address, ctypes.string_at(address, len(data))) for address, data in before]
    for address, data in before:
        ctypes.memmove(address, data, len(data))
    machine.run(kernel, n, args)
    for address, right in expected:
        found = ctypes.string_at(address, len(right))
        if found != right:
            wrong = np.frombuffer(found, np.uint8) != np.frombuffer(right, np.uint8)
            raise FaultError(f"{kernel.name}: {_blame(machine, kernel, address, int(wrong.argmax()), int(wrong.sum()))}")


def _blame(machine: Machine, kernel: Kernel, address: int, at: int, count: int) -> str:
    text, what = machine.code(kernel).text, f"byte {at} of the memory at {address:#x} is wrong, and {count - 1} more"
    for place in range(at, -1, -1):
        writer = machine.pieces.writer(address + place)
        if writer is not None and writer[0] == machine.launches:
            by = "wrote it, PTX" if place == at else f"wrote byte {place}, PTX"
            who = "thread" if place == at else "nobody wrote it. Thread"
            return f"{what}; {who} {writer[1]} {by} line {writer[2]} `{text.at(writer[2])}`"
    return f"{what}; nobody wrote it or a byte before it"
