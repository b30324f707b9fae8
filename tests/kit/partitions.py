"""Damage to a topic-partition directory, with the findings that must be reported: ground truth by construction."""

import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kit import corpus

SOURCE = corpus.HERE / "v2-many-segments" / "many-segments-0"
"""Five segments of some 18 KB with index files, offsets 0 to 899."""
BASES = (0, 189, 370, 558, 727)
END = 900


def log(folder: Path, base: int, suffix: str = "log") -> Path:
    return folder / f"{base:020}.{suffix}"


@dataclass(frozen=True)
class Injury:
    """What is done to a directory, and what that means."""

    name: str
    make: Callable[[Path], object]  # damages a copy of `SOURCE`
    records: int  # intact records that are left; copies count again
    # (first offset, last offset) of each damaged stretch, None if they are not known
    damage: tuple[tuple[int | None, int | None], ...] = ()
    reasons: tuple[str, ...] = ()  # A part of each stretch's reason
    remarks: tuple[tuple[str, int, int], ...] = ()  # (kind, first offset, last offset) of each remark

    def to(self, folder: Path) -> Path:
        copy = folder / "many-segments-0"
        shutil.copytree(SOURCE, copy)
        self.make(copy)
        return copy


def _changed(base: int, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: log(folder, base).write_bytes(change(log(folder, base).read_bytes()))


def _cut(base: int, size: int) -> Callable[[Path], object]:
    return _changed(base, lambda data: data[:size])


def _zeroed(base: int, start: int = 0) -> Callable[[Path], object]:
    return _changed(base, lambda data: data[:start] + bytes(len(data) - start))


def _flipped(base: int, at: int) -> Callable[[Path], object]:
    return _changed(base, lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def _removed(base: int, *suffixes: str) -> Callable[[Path], object]:
    return lambda folder: [log(folder, base, suffix).unlink() for suffix in suffixes]


def _copied(base: int, name: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copyfile(log(folder, base), folder / name)


def _foreign(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _all(*steps: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: [step(folder) for step in steps]


_ALL_FILES = ("log", "index", "timeindex")
_BOUNDARY = 4824
"""A border between two batches of segment 370; the last offset before it is 405."""

INJURIES = (
    Injury("nothing", lambda folder: None, 900),
    Injury("cut in a batch", _cut(370, 5000), 748, ((406, 557),), ("the segment is rolled (00000000000000000558.log follows)",)),
    Injury("cut in the last 17 bytes", _cut(370, 4824 + 9), 748, ((406, 557),), ("the first 9 bytes",)),
    Injury("cut between batches", _cut(370, _BOUNDARY), 748, ((406, 557),), ("found the end of the file after offset 405",)),
    Injury("cut between batches, no index files", _all(_cut(370, _BOUNDARY), _removed(370, "index", "timeindex")), 748,
           remarks=(("offset-gap", 406, 557),)),
    Injury("damaged and cut after it", _all(_flipped(370, _BOUNDARY - 1), _cut(370, _BOUNDARY)), 737, ((395, 405), (406, 557)),
           ("crc", "found the end of the file after offset 405")),
    Injury("emptied", _cut(370, 0), 712, ((370, 557),), ("found an empty file",)),
    Injury("emptied, no index files", _all(_cut(370, 0), _removed(370, "index", "timeindex")), 712, remarks=(("empty-segment", 370, 557),)),
    Injury("zeroed", _zeroed(370), 712, ((370, 557),), ("18816 bytes of zeros",)),
    Injury("zeroed from a batch on", _zeroed(370, _BOUNDARY), 748, ((406, 557),), ("bytes of zeros",)),
    Injury("first zeroed", _zeroed(0), 711, ((0, 188),), ("bytes of zeros",)),
    Injury("log removed", _removed(370, "log"), 712, ((370, 557),), ("370.timeindex, which lists offset 557, and no log",)),
    Injury("removed", _removed(370, *_ALL_FILES), 712, remarks=(("offset-gap", 370, 557),)),
    Injury("two removed", _all(_removed(189, *_ALL_FILES), _removed(370, *_ALL_FILES)), 531, remarks=(("offset-gap", 189, 557),)),
    Injury("first removed", _removed(0, *_ALL_FILES), 711, remarks=(("offset-gap", 0, 188),)),
    Injury("first log removed", _removed(0, "log"), 711, ((0, 188),), ("lists offset 188, and no log",)),
    Injury("last cut in a batch", _cut(727, 5000), 743, remarks=(("ends-early", 743, 899),)),
    Injury("last cut, no index files", _all(_cut(727, 5000), _removed(727, "index", "timeindex")), 743),
    Injury("last emptied", _cut(727, 0), 727, remarks=(("ends-early", 727, 899),)),
    Injury("last zeroed", _zeroed(727), 727, ((727, 899),), ("bytes of zeros",)),
    Injury("last zeroed, no index files", _all(_zeroed(727), _removed(727, "index", "timeindex")), 727),
    Injury("last log removed", _removed(727, "log"), 727, ((727, 899),), ("lists offset 899, and no log",)),
    Injury("rolled, zeros after all of it", _changed(370, lambda data: data + bytes(4096)), 900, remarks=(("zero-tail", None, None),)),
    Injury("duplicated under another offset", _copied(370, "00000000000000000400.log"), 1088, ((400, 557), (370, 384)),
           ("expected offsets below 400", "expected offsets from 400 on")),
    Injury("duplicated under another name", _copied(370, "copy.log"), 1088, ((370, 384),), ("370.log has offsets of this file too",)),
    Injury("renamed", lambda folder: log(folder, 370).rename(log(folder, 360)), 900, ((360, 369), ), ("offsets up to 369",),
           remarks=(("offset-gap", 360, 369),)),
    Injury("text", _foreign("notes.log", b"a line of text\n" * 9), 900, ((None, None),), ("found text (135 bytes)",)),
    Injury("text under a segment's name", _foreign("00000000000000000900.log", b"a line of text\n"), 900, ((None, None),), ("found text",)),
    Injury("short text", _foreign("notes.log", b"hello\n"), 900, ((None, None),), ("found text (6 bytes)",)),
    Injury("gzip", _foreign("old.log", gzip.compress(log(SOURCE, 370).read_bytes(), mtime=0)), 900, ((None, None),), ("found gzip",)),
    Injury("picture", _foreign("picture.log", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(64))), 900, ((None, None),), ("found a PNG",)),
)  # fmt: skip
