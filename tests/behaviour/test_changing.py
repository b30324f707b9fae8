"""A log that changes between the plan and the read: the planned bytes are read, or an error names the change; rows never go missing."""

import os
import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import kolumn
from kit.outcome import raises
from kolumn.decode.pipeline import scan_ranges
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source import identity, storage
from kolumn.source import segments as source
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Range, Segment, find_segments

ROWS = 20_000
BYTES = 30_000
"""Approximate size of a segment."""
WAYS: list[dict[str, Any]] = [{"threads": 1}, {"threads": 3}, {"threads": 1, "binary": "view"}, {"threads": 1, "errors": "skip"}]


def table(first: int, rows: int, seed: int = 0) -> pa.Table:
    offsets = range(first, first + rows)
    values = pa.array([b"%08d" % (i * 7 + seed) for i in offsets], pa.binary())
    return pa.table({"value": values, "offset": offsets, "timestampMs": [1_700_000_000_000 + i for i in offsets]})


@pytest.fixture
def log(tmp_path: Path) -> list[Path]:
    made = kolumn.write(table(0, ROWS), tmp_path / "log" / "t-0", codec="none", batch_bytes=2000, segment_bytes=BYTES)
    assert len(made) > 8
    return [Path(path) for path in made]


def larger(path: Path, tmp_path: Path) -> Path:
    """Another segment with the base offset of this one: more bytes, other records."""
    base = int(path.stem)
    (made,) = kolumn.write(table(base, 4000, seed=1), tmp_path / "other" / "t-0", codec="none", batch_bytes=900, segment_bytes=1 << 30)
    assert Path(made).stat().st_size > path.stat().st_size
    return Path(made)


def replaced(path: Path, tmp_path: Path) -> None:
    os.replace(larger(path, tmp_path), path)


def put_under_the_same_number(path: Path, tmp_path: Path) -> None:
    """File systems reuse the inode number of a removed file; ext4 does so at once."""
    data = larger(path, tmp_path).read_bytes()
    path.unlink()
    path.write_bytes(data)


def deleted(path: Path, _: Path) -> None:
    path.unlink()


def cut(path: Path, _: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_between_batches(path: Path, _: Path) -> None:
    os.truncate(path, kolumn.batches(path)["position"][5].as_py())


def written_over(path: Path, tmp_path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes(larger(path, tmp_path).read_bytes()[:size])


Change = Callable[[Path, Path], None]
OTHER_FILES: list[Change] = [replaced, put_under_the_same_number, deleted]
CHANGES: dict[Change, str] = {
    replaced: "was replaced by another file after the source was listed",
    put_under_the_same_number: "was replaced by another file after the source was listed",
    deleted: "was deleted after the source was listed",
    cut: "it was truncated",
    cut_between_batches: "it was truncated",
    written_over: "was overwritten after the source was listed",
}


def between(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Make a change once, when the segments are known and not open."""
    find, todo = source.in_directory, [change]

    def looked(folder: str, above: tuple[Any, ...] = (), **more: Any) -> list[Segment]:
        segments = find(folder, above, **more)
        if not above and todo:
            todo.pop()()
        return segments

    monkeypatch.setattr(source, "in_directory", looked)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("number", "change", "read"),
    [
        *((3, change, partial(kolumn.read, **options)) for change in CHANGES for options in WAYS),
        # All readers of segments use one class, `SegmentFile`.
        *((-1, change, read) for change in OTHER_FILES for read in (kolumn.verify, kolumn.batches, kolumn.space)),
        *((-1, change, partial(kolumn.read, start_offset=ROWS - 1)) for change in OTHER_FILES),
    ],
)
def test_between_plan_and_read(
    number: int, change: Change, read: Callable[[Path], Any], log: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(monkeypatch, lambda: change(log[number], tmp_path))
    words = rf"{log[number]}.*{CHANGES[change]}.*Run again: the read is then planned for the present files"
    raises(kolumn.KolumnError, words, read, log[0].parent)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_while_it_is_read(change: Change, threads: int, log: list[Path], tmp_path: Path) -> None:
    """The change is made after two record batches of segments that are larger than a chunk."""
    reader = kolumn.scan(log[0].parent, chunk_bytes=20_000, threads=threads)
    rows = sum(reader.read_next_batch().num_rows for _ in range(2))
    change(log[-2], tmp_path)
    with pytest.raises(kolumn.KolumnError, match=CHANGES[change]):
        rows += sum(batch.num_rows for batch in reader)
    assert rows < ROWS


@pytest.mark.parametrize("change", [*OTHER_FILES, written_over])
def test_what_is_open_is_read_to_its_end(change: Change, log: list[Path], tmp_path: Path) -> None:
    expected = kolumn.read(log[0], columns=["offset"])["offset"].to_pylist()
    with kolumn.scan(log[0], chunk_bytes=5000, threads=1, columns=["offset"], errors="skip") as reader:
        offsets = reader.read_next_batch()["offset"].to_pylist()
        change(log[0], tmp_path)
        if change is written_over:
            # It is not known which of the bytes were read before the change.
            raises(kolumn.KolumnError, "was overwritten", reader.read_all)
        else:
            assert offsets + reader.read_all()["offset"].to_pylist() == expected


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * 7)


def renamed_and_back(path: Path) -> None:
    path.rename(path.with_suffix(".x")).rename(path)


@pytest.mark.parametrize("change", [appended, lambda path: os.link(path, path.with_suffix(".backup")), renamed_and_back])
def test_what_is_no_other_file(change: Callable[[Path], None], log: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    between(monkeypatch, lambda: change(log[-1]))
    reader = kolumn.scan(log[0].parent, chunk_bytes=20_000, threads=1)
    rows = reader.read_next_batch().num_rows
    appended(log[-1])
    assert rows + reader.read_all().num_rows == ROWS


def test_allocated_in_advance(log: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``log.preallocate`` the active segment has its final size from the start, and only its time shows that a batch was appended."""
    path, data = log[-1], log[-1].read_bytes()
    last = kolumn.batches(path)["position"][-1].as_py()
    path.write_bytes(data[:last] + bytes(len(data) - last + 5000))

    def append() -> None:
        with path.open("r+b") as file:
            file.seek(last)
            file.write(data[last:])
        later = path.stat().st_mtime_ns + 10**9
        os.utime(path, ns=(later, later))

    between(monkeypatch, append)
    assert kolumn.read(path.parent).num_rows == ROWS


def test_a_broker_is_appending_right_now(log: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's time changes before its size: a file that seems to be overwritten is examined a second time."""
    (found,) = find_segments(log[-1])
    later = found.identity.modified + 10**9 if found.identity and found.identity.modified else 0
    os.utime(log[-1], ns=(later, later))
    monkeypatch.setattr("time.sleep", lambda _: appended(log[-1]))
    with SegmentFile(found):
        pass


def test_identities_of_segments(log: list[Path]) -> None:
    """A Spark task may see the same file system with another device number; it still tells files apart."""
    os.utime(log[1], (1, 1))  # Files of one clock tick and one size differ in nothing but the inode.
    here, other = (find_segments(path)[0] for path in log[:2])
    sent: Segment = pickle.loads(pickle.dumps(Range.whole(here))).segment
    assert here.identity is not None
    assert sent.identity is not None
    assert (sent, sent.identity.device, sent.identity.inode) == (here, None, here.identity.inode)
    elsewhere = replace(here.identity, device=77)
    assert not sent.identity.is_another(elsewhere)
    assert here.identity.is_another(elsewhere)
    assert sent.identity.is_another(other.identity)
    # File systems in user space have other inode numbers on each machine, and no time of birth.
    fuse = replace(elsewhere, inode=5, born=None)
    assert not sent.identity.is_another(fuse)
    assert sent.identity.is_another(replace(fuse, size=1))
    # Callers may create a `Segment` themselves.
    assert rows_of([Segment(str(log[0]), "t", 0, 0, log[0].stat().st_size)]) == kolumn.read(log[0]).num_rows


def rows_of(segments: Iterable[Segment]) -> int:
    return sum(batch.num_rows for batch in scan_ranges(map(Range.whole, segments), Options.of(threads=1)))


def test_at_a_local_url(log: list[Path], tmp_path: Path) -> None:
    """It is a file of this machine."""
    segments = live_segments(f"local://{log[0].parent}", Options.of()).one_log()
    appended(log[-1])
    assert rows_of(segments) == ROWS
    replaced(log[3], tmp_path / "local")
    raises(kolumn.KolumnError, "was replaced by another file", rows_of, segments)


def test_object_stores_and_others() -> None:
    """File systems report different facts. If nothing can be appended to an object, one with more bytes is another object."""

    def of(store: str, size: int, second: int, **facts: str) -> identity.Identity:
        return identity.of_object(fs.FileInfo("a", fs.FileType.File, size=size, mtime=float(second)), store, facts)

    for store, after, is_another in (
        ("s3", (10, 1), False), ("s3", (20, 2), True),
        ("hdfs", (20, 2), False), ("hdfs", (10, 2), True), ("hdfs", (9, 1), True),
    ):  # fmt: skip
        assert of(store, 10, 1).is_another(of(store, *after)) == is_another
    assert of("py::fsspec+s3", 10, 1, ETag='"a"').is_another(of("py::fsspec+s3", 10, 1, ETag='"b"'))
    assert storage.real_folder("s3://bucket/x") is None
