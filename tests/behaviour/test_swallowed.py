"""A damaged entry whose length leads to the end of a later entry: intact entries in between are read, and copies in values are not."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.draft_segments import FORMATS, Maker
from kit.encoder import Record, batch, control_batch, message, wrapper
from kolumn.damage.search import Search

TIME = 1_700_000_000_000


def records(offset: int, count: int, size: int = 40, value: bytes | None = None) -> list[Record]:
    rng = random.Random(offset)
    return [Record(offset + i, b"key-%d" % i, value or rng.randbytes(size), TIME + i) for i in range(count)]


def entry(kind: str, offset: int, count: int, size: int = 40, value: bytes | None = None) -> bytes:
    """An entry of format 2, or of formats 0 and 1: a message for one record, a wrapper for all of them."""
    made = records(offset, count, size, value)
    if kind == "v2":
        return batch(made)
    if kind == "v2 gzip":
        return batch(made, codec=1)
    if kind.endswith("wrapper"):
        return wrapper(int(kind[1]), made, 1)
    return message(int(kind[1]), made[0])


KINDS = ["v2", "v2 gzip", "v0", "v1", "v0 wrapper", "v1 wrapper"]


def chain(kind: str, counts: list[int], sizes: list[int], first: int = 100) -> list[bytes]:
    entries, offset = [], first
    for count, size in zip(counts, sizes, strict=True):
        count = 1 if kind in ("v0", "v1") else count
        entries.append(entry(kind, offset, count, size))
        offset += count
    return entries


def without(entries: list[bytes], i: int, j: int) -> bytes:
    """Entry ``i`` lacks as many bytes as the entries after it up to ``j`` have together, so its length leads to the end of ``j``."""
    gone = sum(map(len, entries[i + 1 : j + 1]))
    assert gone < len(entries[i]) - 70
    cut = [*entries]
    cut[i] = cut[i][: len(cut[i]) - gone - 5] + cut[i][-5:]
    return b"".join(cut)


def offsets(path: Path, **options: Any) -> list[int]:
    return kolumn.read(path, columns=["offset"], errors="skip", include_control=True, **options)["offset"].to_pylist()


def check(path: Path, data: bytes, want: list[int], damage: list[tuple[int, int]], **options: Any) -> None:
    """All ways of reading return the offsets, and the report lists the damaged bytes."""
    path.write_bytes(data)
    for how in ({"threads": 1}, {"threads": 3}, {"threads": 1, "chunk_bytes": 200}, {"threads": 3, "chunk_bytes": 100}):
        assert offsets(path, **how, **options) == want, how
    report = kolumn.verify(path, **options)
    assert [(row["position"], row["size"]) for row in report.damage.to_pylist()] == damage
    assert report.records == len(want)
    listed = kolumn.batches(path, errors="skip", **options)
    sizes = listed.filter(listed["crcValid"])["size"].to_pylist()
    assert sum(sizes) + sum(size for _, size in damage) + report.segments["tailBytes"][0].as_py() == len(data)
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        kolumn.read(path, **options)
    assert caught.value.position == damage[0][0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{100:020}.log"


def test_the_last_mutant(path: Path) -> None:
    """A batch lacks 1,103 bytes, a batch of 1,025 and a marker of 78 follow it, and its length leads to the end of the marker."""
    first = batch(records(100, 3))
    long = batch(records(103, 4, 500))
    followed = batch(records(107, 1, 1025 - 61 - 14))
    marker = control_batch(108, 1)
    last = batch(records(109, 5))
    assert (len(followed), len(marker)) == (1025, 78)
    data = first + long[:200] + long[200 + 1103 :] + followed + marker + last
    check(path, data, [100, 101, 102, 107, 108, *range(109, 114)], [(len(first), len(long) - 1103)])


@pytest.mark.sample
@pytest.mark.parametrize("ending", ["an entry", "the end", "zeros", "a cut entry"])
@pytest.mark.parametrize("inside", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_entries_that_a_length_swallows(path: Path, kind: str, inside: int, ending: str) -> None:
    counts, sizes = [2, 3, 2, 2, 2], [40, 700, 30, 30, 40]
    entries = chain(kind, counts, sizes)
    if ending in ("the end", "zeros"):
        entries = entries[: 2 + inside]
    data = without(entries, 1, 1 + inside)
    size = len(entries[1]) - sum(map(len, entries[2 : 2 + inside]))
    if ending == "zeros":
        data += bytes(300)
    kept = [k for k in range(len(entries)) if k != 1]
    if ending == "a cut entry":
        data = data[:-20]
        kept.remove(4)
    bounds = [100]
    for count in counts:
        bounds.append(bounds[-1] + (1 if kind in ("v0", "v1") else count))
    want = [offset for k in kept for offset in range(bounds[k], bounds[k + 1])]
    check(path, data, want, [(len(entries[0]), size)])


@pytest.mark.parametrize("format", FORMATS)
def test_drafts(path: Path, format: str) -> None:
    """In the drafts: the length of an entry leads over the next two, and its own bytes are damaged."""
    for seed in range(40):
        made = Maker(format, random.Random(f"{format} {seed}")).segment(6)
        entries = [one.data for one in made]
        if any(len(entries[2][:12]) < 12 or entries[2][16] > 2 or not one.rows for one in made):
            continue
        damaged = bytearray(entries[2])
        struct.pack_into(">i", damaged, 8, sum(map(len, entries[2:5])) - 12)
        damaged[-1] ^= 0x40
        path.write_bytes(b"".join([*entries[:2], bytes(damaged), *entries[3:]]))
        rows = [row.offset for k in (0, 1, 3, 4, 5) for row in made[k].rows]
        assert offsets(path, format=format, threads=1) == rows, seed
        assert offsets(path, format=format, threads=3, chunk_bytes=100) == rows, seed


@pytest.mark.parametrize("kind", ["v2", "v1"])
@pytest.mark.parametrize("copied", [100, 103, 104, 105, 106, 108, 112, 200])
def test_copies_in_a_value_come_back_only_where_offsets_are_missing(path: Path, kind: str, copied: int) -> None:
    """The damaged entry claims offset 104, and 108 follows it: a copy of a batch in its value counts only with offsets 105 to 107."""
    copy = b"before" + batch(records(copied, 2)) + b"after"
    entries = [entry(kind, offset, 1, value=value) for offset, value in ((103, None), (104, copy), (108, None), (109, None))]
    damaged = bytearray(entries[1])
    damaged[-1] ^= 1
    path.write_bytes(b"".join([entries[0], bytes(damaged), *entries[2:]]))
    fits = [copied, copied + 1] if copied > 104 and copied + 1 < 108 else []
    assert offsets(path) == [103, *fits, 108, 109]


@pytest.mark.parametrize("copied", [103, 105, 106, 200])
def test_copies_in_the_value_of_the_last_record_are_data(path: Path, copied: int) -> None:
    copies = batch(records(copied, 2)) + batch(records(copied + 2, 2))
    entries = [entry("v2", 103, 1), entry("v2", 104, 1, value=copies)]
    damaged = bytearray(entries[1])
    damaged[63] ^= 1
    path.write_bytes(entries[0] + bytes(damaged))
    assert offsets(path) == [103]
    assert kolumn.verify(path).damage.num_rows == 1


def test_a_gap_that_compaction_left_holds_nothing(path: Path) -> None:
    entries = [entry("v2", offset, 2) for offset in (100, 110, 120)]
    damaged = bytearray(entries[1])
    damaged[-1] ^= 1
    check(path, entries[0] + bytes(damaged) + entries[2], [100, 101, 120, 121], [(len(entries[0]), len(entries[1]))])


def test_a_flipped_byte_costs_no_search(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that claims all offsets between its neighbours leaves no gap, so it is not searched."""

    def never(*_: Any) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(Search, "_best", never)
    entries = [entry("v2", 100 + 2 * i, 2) for i in range(4)]
    damaged = bytearray(entries[1])
    damaged[-1] ^= 1
    path.write_bytes(b"".join([entries[0], bytes(damaged), *entries[2:]]))
    assert offsets(path) == [100, 101, 104, 105, 106, 107]


def test_a_block_that_was_written_twice(path: Path) -> None:
    """The second copy of a block begins in the middle of an entry. The entry that was cut there is whole after it."""
    entries = chain("v2", [2, 2, 2, 2, 2], [60] * 5)
    size, data = len(entries[0]), b"".join(entries)
    high = 3 * size + 90
    path.write_bytes(data[:high] + data[high - 200 : high] + data[high:])
    assert sorted(set(offsets(path))) == list(range(100, 110))


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_that_was_written_twice_hides_no_entry_behind_damage(path: Path, kind: str) -> None:
    """Whole, or from the middle of an entry on; before other entries and at the end; also a block from before the damage."""
    entries = chain(kind, [2] * 7, [40] * 7)
    each = 1 if kind in ("v0", "v1") else 2
    whole = {100 + at for at in range(7 * each) if at // each != 1}
    for again, cut in (([3], 0), ([2, 3], 0), ([0], 0), ([0, 3], 0), ([2, 3], 9), ([2, 3, 4], 9)):
        for until in (5, 7):
            block = b"".join(entries[at] for at in again)[cut:]
            path.write_bytes(entries[0] + entries[1][8:-3] + b"".join(entries[2:until]) + block + b"".join(entries[until:]))
            assert set(offsets(path)) >= whole, (again, cut, until)


def test_entries_that_share_bytes(path: Path) -> None:
    """The last bytes of an entry are missing, and they equal the zeros at the beginning of the next offset: both entries are intact."""
    entries = [batch(records(100, 1, value=b"ends with zeros" + bytes(4))), *(batch(records(offset, 2)) for offset in (101, 103))]
    data = entries[0][:-3] + entries[1] + entries[2]
    path.write_bytes(data)
    assert offsets(path) == [100, 101, 102, 103, 104]
    (damage,) = kolumn.verify(path).damage.to_pylist()
    assert (damage["position"], damage["size"]) == (len(entries[0]), 0)


def test_a_log_that_was_cut_inside_a_header(path: Path) -> None:
    """The rest of the last header is too short to be read: the entries between it and the damage are read all the same."""
    entries = chain("v2", [2, 2, 2, 2], [60] * 4)
    for left in (3, 8, 12, 17, 30, 60):
        damaged = entries[0][:100] + entries[0][130:]
        path.write_bytes(b"".join([damaged, *entries[1:3], entries[3][:left]]))
        assert offsets(path) == [102, 103, 104, 105], left


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_a_damaged_wrapper_are_no_entries(path: Path, magic: int) -> None:
    """Messages in a stored block are uncompressed: inside a wrapper whose length is wrong they have right checksums."""
    wrappers = [wrapper(magic, records(offset, 2), 3, style="stored") for offset in (0, 2, 4)]
    damaged = bytearray(wrappers[0])
    struct.pack_into(">i", damaged, 8, 13)
    damaged[12] ^= 1
    path = path.with_name(f"{0:020}.log")
    path.write_bytes(bytes(damaged) + wrappers[1] + wrappers[2])
    assert offsets(path) == [2, 3, 4, 5]


def test_messages_of_a_wrapper_without_a_head_are_no_entries(path: Path) -> None:
    """The head of a segment is missing, and with it the header of a format 1 wrapper, to whose base its messages' offsets are relative."""
    wrappers = [wrapper(1, records(offset, 2), 2) for offset in (50, 52, 54)]
    # A snappy stream may end with an uncompressed message.
    data = wrappers[0][60:] + message(1, Record(1, b"k", b"v", TIME)) + wrappers[1] + wrappers[2]
    path = path.with_name(f"{0:020}.log")
    path.write_bytes(data)
    assert offsets(path) == [52, 53, 54, 55]
