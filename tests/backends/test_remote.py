"""Segments behind URLs: the same rows as from this machine's files, whatever file system it is."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kolumn import storage
from kolumn.errors import ArgumentError, KolumnError
from kolumn.source import find_segments

fsspec = pytest.importorskip("fsspec")
CORPUS = Path(__file__).parent.parent / "data" / "corpus"
CASES = ["upgraded", "transactional", "compacted", "v2-java", "unclean"]


@pytest.fixture(scope="module")
def memory() -> str:
    """A bucket with all cases."""
    system = fsspec.filesystem("memory")
    for case in CASES:
        system.put(str(CORPUS / case), f"/bucket/{case}", recursive=True)
    return "memory://bucket"


def _urls(case: str, memory: str) -> list[str]:
    return [f"{memory}/{case}", f"local://{CORPUS / case}", f"file://{CORPUS / case}"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", [{}, {"threads": 1, "binary": "view"}, {"start_offset": 100, "end_offset": 400}, {"errors": "skip"}])
def test_the_same_rows(memory: str, case: str, options: dict[str, Any]) -> None:
    columns = ["offset", "key", "value", "topic", "partition", "timestamp"]
    expected = kolumn.read(CORPUS / case, columns=columns, **options)
    for url in _urls(case, memory):
        assert kolumn.read(url, columns=columns, **options).equals(expected), url
        assert kolumn.batches(url).drop("segment").equals(kolumn.batches(CORPUS / case).drop("segment")), url


def test_transactions(memory: str) -> None:
    columns = ["offset", "transaction"]
    expected = kolumn.read(CORPUS / "transactional", columns=columns, isolation_level="read_committed")
    assert kolumn.read(f"{memory}/transactional", columns=columns, isolation_level="read_committed").equals(expected)


def test_names(memory: str) -> None:
    one = find_segments(f"{memory}/upgraded/*/*.log")
    assert [segment.path.rpartition("/")[2] for segment in one] == [s.path.rpartition("/")[2] for s in find_segments(CORPUS / "upgraded")]
    assert [(s.topic, s.partition, s.base_offset, s.size) for s in one] == [
        (s.topic, s.partition, s.base_offset, s.size) for s in find_segments(CORPUS / "upgraded")
    ]
    assert one[0].path.startswith(f"{memory}/upgraded/")
    [alone] = find_segments(one[0].path)
    assert alone == one[0]
    assert len(find_segments([f"{memory}/upg*", f"{memory}/upgraded"])) == len(one)
    assert (
        kolumn.read(alone.path).num_rows
        == kolumn.read(CORPUS / "upgraded" / storage.base_name(storage.parent(alone.path)) / storage.base_name(alone.path)).num_rows
    )


def test_conversion_and_compaction(memory: str, tmp_path: Path) -> None:
    for url, name in ((f"{memory}/compacted", "remote"), (str(CORPUS / "compacted"), "local")):
        kolumn.compact(url, tmp_path / name / "compact", now=1_795_203_600_000)
        kolumn.convert(url, tmp_path / name / "convert", format="v3-compact")
    files = {path.relative_to(tmp_path / "local"): path.read_bytes() for path in (tmp_path / "local").rglob("*") if path.is_file()}
    assert {
        path.relative_to(tmp_path / "remote"): path.read_bytes() for path in (tmp_path / "remote").rglob("*") if path.is_file()
    } == files


def test_damage_is_found_in_the_same_places(memory: str, tmp_path: Path) -> None:
    source = next((CORPUS / "upgraded").glob("*/*.log"))
    data = bytearray(source.read_bytes())
    for at in range(5000, len(data), 30_000):
        data[at] ^= 1
    fsspec.filesystem("memory").pipe("/bucket/damaged/t-0/00000000000000000000.log", bytes(data))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(data)
    here, there = kolumn.verify(tmp_path), kolumn.verify(f"{memory}/damaged")
    assert not here.ok
    assert there.damage.drop("segment").equals(here.damage.drop("segment"))


def test_large_files_come_in_blocks(monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
    """Headers of many batches are not as many requests."""
    calls = []
    real = storage.open_input

    class Counting:
        def __init__(self, url: str) -> None:
            self.file = real(url)

        def read_at(self, size: int, start: int) -> bytes:
            calls.append((start, size))
            return bytes(self.file.read_at(size, start))

        def close(self) -> None:
            self.file.close()

    monkeypatch.setattr(storage, "open_input", Counting)
    segments = find_segments(f"{memory}/v2-java")
    kolumn.batches(segments[0].path, check_crcs=False)
    assert calls == [(0, segments[0].size)]


def test_what_is_not_there(memory: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no such file or directory"):
        kolumn.read(f"{memory}/nothing")
    with pytest.raises(ArgumentError, match="nosuchscheme"):
        kolumn.read("nosuchscheme://bucket/x")
    with pytest.raises(ArgumentError, match="segments are written to a file system of this machine"):
        kolumn.convert(f"{memory}/upgraded", "memory://out")
    shutil.copytree(CORPUS / "upgraded", tmp_path / "gone")
    [segment, *_] = find_segments(f"local://{tmp_path / 'gone'}")
    reader = kolumn.scan(segment.path, threads=1, chunk_bytes=1000)
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(KolumnError, match="cannot be opened"):
        reader.read_all()
