"""A log that changes between the plan and the read: the planned bytes are read, or an error names the change; rows never go missing."""

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
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
    return pa.table(
        {
            "value": pa.array([b"%08d" % (i * 7 + seed) for i in range(first, first + rows)], pa.binary()),
            "offset": pa.array(range(first, first + rows), pa.int64()),
            "timestampMs": pa.array([1_700_000_000_000 + i for i in range(first, first + rows)], pa.int64()),
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> list[Path]:
    """Segments of one partition."""
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
CHANGES: dict[Change, str] = {
    replaced: "was replaced by another file after the source was listed",
    put_under_the_same_number: "was replaced by another file after the source was listed",
    deleted: "was deleted after the source was listed",
    cut: "it was cut",
    cut_between_batches: "it was cut",
    written_over: "was overwritten after the source was listed",
}


def between(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Make a change once, when the segments are known and not open."""
    found, todo = source.in_directory, [change]

    def looked(folder: str, above: tuple[Any, ...] = (), **more: Any) -> list[Segment]:
        segments = found(folder, above, **more)
        if not above and todo:
            todo.pop()()
        return segments

    monkeypatch.setattr(source, "in_directory", looked)


@pytest.mark.sample
@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_between_plan_and_read(
    change: Change, options: dict[str, Any], log: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(monkeypatch, lambda: change(log[3], tmp_path))
    with pytest.raises(
        kolumn.KolumnError, match=rf"{log[3]}.*{CHANGES[change]}.*Run again: the read is then planned for the present files"
    ):
        kolumn.read(log[0].parent, **options)


@pytest.mark.parametrize("change", [replaced, put_under_the_same_number, deleted], ids=lambda change: change.__name__)
def test_other_readers(change: Change, log: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All readers of segments use one class, `SegmentFile`."""
    find = source.in_directory
    for number, read in enumerate((kolumn.verify, kolumn.batches, kolumn.space, lambda path: kolumn.read(path, start_offset=ROWS - 1))):
        monkeypatch.setattr(source, "in_directory", find)
        path = tmp_path / str(number) / "t-0"
        shutil.copytree(log[0].parent, path)
        between(monkeypatch, lambda path=path, number=number: change(path / log[-1].name, tmp_path / str(number)))  # type: ignore[misc]
        with pytest.raises(kolumn.KolumnError, match=CHANGES[change]):
            read(path)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_while_it_is_read(change: Change, threads: int, log: list[Path], tmp_path: Path) -> None:
    """The change is made after two record batches of segments that are larger than a chunk."""
    reader = kolumn.scan(log[0].parent, chunk_bytes=20_000, threads=threads)
    rows = sum(reader.read_next_batch().num_rows for _ in range(2))
    change(log[-2], tmp_path)
    with pytest.raises(kolumn.KolumnError, match=CHANGES[change]):
        rows += sum(batch.num_rows for batch in reader)
    assert rows < ROWS


@pytest.mark.parametrize("change", [replaced, put_under_the_same_number, deleted], ids=lambda change: change.__name__)
def test_what_is_open_is_read_to_its_end(change: Change, log: list[Path], tmp_path: Path) -> None:
    with kolumn.scan(log[0], chunk_bytes=5000, threads=1, columns=["offset"]) as reader:
        offsets = reader.read_next_batch()["offset"].to_pylist()
        expected = kolumn.read(log[0], columns=["offset"])["offset"].to_pylist()
        change(log[0], tmp_path)
        for batch in reader:
            offsets += batch["offset"].to_pylist()
    assert offsets == expected


def test_written_over_while_it_is_open(log: list[Path], tmp_path: Path) -> None:
    """It is not known which of the bytes were read before the change."""
    reader = kolumn.scan(log[0], chunk_bytes=5000, threads=1, errors="skip")
    reader.read_next_batch()
    written_over(log[0], tmp_path)
    with pytest.raises(kolumn.KolumnError, match="was overwritten"):
        reader.read_all()


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * 7)


def linked(path: Path) -> None:
    os.link(path, path.with_suffix(".snapshot-of-a-backup"))


def renamed_and_back(path: Path) -> None:
    path.rename(path.with_suffix(".x")).rename(path)


@pytest.mark.parametrize("change", [appended, linked, renamed_and_back], ids=lambda change: change.__name__)
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


def test_the_device_of_another_machine_is_not_compared(log: list[Path]) -> None:
    """A Spark task may see the same file system with another device number; it still tells files apart."""
    os.utime(log[1], (1, 1))  # Files of one clock tick and one size differ in nothing but the inode.
    (found,) = find_segments(log[0])
    (other,) = find_segments(log[1])
    sent: Segment = pickle.loads(pickle.dumps(Range.whole(found))).segment
    assert found.identity is not None
    assert other.identity is not None
    assert sent.identity is not None
    assert (sent, sent.identity.device, sent.identity.inode) == (found, None, found.identity.inode)
    elsewhere = identity.replace(found.identity, device=77)
    assert not sent.identity.is_another(elsewhere)
    assert found.identity.is_another(elsewhere)
    assert sent.identity.is_another(other.identity)
    # File systems in user space have other inode numbers on each machine, and no time of birth.
    fuse = identity.replace(elsewhere, inode=5, born=None)
    assert not sent.identity.is_another(fuse)
    assert sent.identity.is_another(identity.replace(fuse, size=1))


def test_a_segment_without_identity_is_read(log: list[Path]) -> None:
    """Callers may create a `Segment` themselves."""
    made = Segment(str(log[0]), "t", 0, 0, log[0].stat().st_size)
    assert sum(batch.num_rows for batch in scan_ranges([Range.whole(made)], Options.of())) == kolumn.read(log[0]).num_rows


@pytest.fixture
def bucket(log: list[Path]) -> Iterator[str]:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.put(str(log[0].parent), "/changing/t-0", recursive=True)
    yield "memory://changing/t-0"
    system.rm("/changing", recursive=True)


def test_at_a_url(bucket: str, log: list[Path], tmp_path: Path) -> None:
    import fsspec

    system, name = fsspec.filesystem("memory"), f"/changing/t-0/{log[3].name}"
    options = Options.of(threads=1)
    assert kolumn.read(bucket).num_rows == ROWS
    for contents, expected in (
        (larger(log[3], tmp_path).read_bytes(), "was replaced by another file"),
        (log[3].read_bytes()[::-1], "was replaced by another file"),
        (None, "was deleted"),
    ):
        segments = live_segments(bucket, options).one_log()
        if contents is None:
            system.rm(name)
        else:
            system.pipe(name, contents)
        with pytest.raises(kolumn.KolumnError, match=expected):
            for _ in scan_ranges(map(Range.whole, segments), options):
                pass


def test_a_local_url_is_a_file_of_this_machine(log: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    segments = live_segments(f"local://{log[0].parent}", Options.of()).one_log()
    appended(log[-1])
    assert sum(batch.num_rows for batch in scan_ranges(map(Range.whole, segments), Options.of())) == ROWS
    replaced(log[3], tmp_path)
    with pytest.raises(kolumn.KolumnError, match="was replaced by another file"):
        list(scan_ranges(map(Range.whole, segments), Options.of()))


def test_object_stores_and_others() -> None:
    """File systems report different facts. If nothing can be appended to an object, one with more bytes is another object."""
    from pyarrow import fs

    def info(size: int, second: int) -> fs.FileInfo:
        return fs.FileInfo("a", fs.FileType.File, size=size, mtime=float(second))

    old = identity.of_object(info(10, 1), "s3", {})
    assert not old.is_another(identity.of_object(info(10, 1), "s3", {}))
    assert old.is_another(identity.of_object(info(20, 2), "s3", {}))
    file = identity.of_object(info(10, 1), "hdfs", {})
    assert not file.is_another(identity.of_object(info(20, 2), "hdfs", {}))
    assert file.is_another(identity.of_object(info(10, 2), "hdfs", {}))
    assert file.is_another(identity.of_object(info(9, 1), "hdfs", {}))
    tagged = identity.of_object(info(10, 1), "py::fsspec+s3", {"ETag": '"a"'})
    assert tagged.is_another(identity.of_object(info(10, 1), "py::fsspec+s3", {"ETag": '"b"'}))
    assert storage.real_folder("s3://bucket/x") is None
