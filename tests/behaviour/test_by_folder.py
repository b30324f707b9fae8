"""Log directories whose partitions are decoded while the next ones are listed: rows and errors are those of a read that lists all first."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.encoder import Record, batch
from kolumn.decode.small_segments import SmallSegments
from kolumn.errors import KolumnError
from kolumn.options import Options
from kolumn.replicas.by_folder import ranges_by_folder
from kolumn.source import storage

PARTITIONS, SEGMENTS, EACH = 6, 12, 5
ID = "AAAAAAAAAAAAAAAAAAAAAA"


def entry(offset: int, partition: int) -> bytes:
    return batch([Record(offset + i, b"key", b"value of %d" % partition, offset) for i in range(EACH)])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A broker's log directory."""
    for partition in range(PARTITIONS):
        folder = tmp_path / "logs" / f"t-{partition}"
        folder.mkdir(parents=True)
        for i in range(SEGMENTS):
            (folder / f"{EACH * i:020}.log").write_bytes(entry(EACH * i, partition))
    (tmp_path / "logs" / "meta.properties").write_text("version=1\n")
    return tmp_path / "logs"


def outcome(source: Path, threads: int, **options: Any) -> object:
    try:
        return kolumn.read(source, threads=threads, columns=["topic", "partition", "offset", "value", "segment"], **options).to_pydict()
    except KolumnError as error:
        return type(error), str(error)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def swap(logs: Path) -> None:
    """A finished round of compaction over the first three segments of a partition."""
    (logs / "t-4" / f"{0:020}.log.swap").write_bytes(entry(0, 4) + entry(EACH, 4) + entry(2 * EACH, 4))


def damage_then_links(logs: Path) -> None:
    """What no listing of its folder alone shows: another name for a segment."""
    damaged(logs / "t-1" / f"{EACH * 3:020}.log")
    os.symlink(logs / "t-3" / f"{0:020}.log", logs / "t-3" / f"{EACH * SEGMENTS:020}.log")


def damage_then_copies(logs: Path) -> None:
    """Copies with the same offsets are an error of the plan, before any damage."""
    damaged(logs / "t-0" / f"{0:020}.log")
    shutil.copytree(logs / "t-2", logs / "t-5" / "t-2")


def damage_then_none(logs: Path) -> None:
    damaged(logs / "t-0" / f"{0:020}.log")
    loop = logs / "t-5" / "t-2"
    loop.symlink_to(loop)


CHANGES: dict[str, Callable[[Path], object]] = {
    "none": lambda logs: None,
    "damage": lambda logs: damaged(logs / "t-1" / f"{EACH * 3:020}.log"),
    "swap": swap,
    "links": damage_then_links,
    "copies": damage_then_copies,
    "below": lambda logs: shutil.copytree(logs / "t-2", logs / "t-5" / "u-2"),
    "loop": damage_then_none,
    "another name": lambda logs: (logs / "t-3" / "copy.log").write_bytes(entry(EACH * SEGMENTS, 3)),
    "cleaned": lambda logs: (logs / "t-3" / f"{EACH:020}.log.cleaned").write_bytes(entry(EACH, 3)),
    "an index alone": lambda logs: (logs / "t-3" / f"{EACH * 2 + 1:020}.index").write_bytes(bytes(8)),
    "a gap": lambda logs: (logs / "t-3" / f"{EACH * 2:020}.log").unlink(),
    "empty": lambda logs: [path.unlink() for path in (logs / "t-3").iterdir()],
    "all empty": lambda logs: [path.unlink() for path in logs.glob("t-*/*")],
    "an empty segment": lambda logs: (logs / "t-3" / f"{EACH * 2:020}.log").write_bytes(b""),
    "deleted": lambda logs: (logs / "t-3").rename(logs / f"t-3.{'0' * 32}-delete"),
    "the same number": lambda logs: shutil.copytree(logs / "t-3", logs / "t-03"),
    "tier": lambda logs: (logs / "t-3").rename(logs / f"t-3-{ID}"),
    "in a tier": lambda logs: [path.rename(path.with_name(f"{path.stem}-{ID}.log")) for path in (logs / "t-3").iterdir()],
    "a manifest": lambda logs: (logs / "t-3" / f"{0:020}-{ID}.rsm-manifest").write_text("{}"),
    "beside": lambda logs: (logs / f"{0:020}.log").write_bytes(entry(0, 0)),
}


@pytest.mark.parametrize("errors", ["raise", "skip"])
@pytest.mark.parametrize("change", CHANGES)
def test_rows_and_errors_are_those_of_one_thread(logs: Path, change: str, errors: str) -> None:
    CHANGES[change](logs)
    expected = outcome(logs, 1, errors=errors)
    assert outcome(logs, 2, errors=errors) == expected
    assert change == "none" or not isinstance(expected, dict) or expected["offset"]


def listed(monkeypatch: pytest.MonkeyPatch, before: Callable[[str], object]) -> None:
    listing = storage.listing

    def list_now(folder: str, unusable: list[str] | None = None) -> Any:
        before(folder)
        return listing(folder, unusable)

    monkeypatch.setattr(storage, "listing", list_now)


def test_the_first_partition_is_decoded_before_the_last_one_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in range(40):
        folder = tmp_path / f"t-{partition}"
        folder.mkdir()
        for i in range(3):
            (folder / f"{EACH * i:020}.log").write_bytes(entry(EACH * i, partition))
    steps, decode = list[str](), SmallSegments.decode

    def decoded(small: SmallSegments, ranges: Any) -> Any:
        found = decode(small, ranges)
        steps.append("decoded")
        return found

    monkeypatch.setattr(SmallSegments, "decode", decoded)
    listed(monkeypatch, lambda folder: steps.append("listed"))
    assert kolumn.read(tmp_path, threads=2, chunk_bytes=1000).num_rows == 40 * 3 * EACH
    assert steps.count("listed") == 40
    assert steps.index("decoded") < len(steps) - 1 - steps[::-1].index("listed")


@pytest.mark.parametrize("at", [0, 3, PARTITIONS - 1])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_folder_that_is_deleted_meanwhile(logs: Path, at: int, is_damaged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it cannot be listed comes before damage, as if all had been listed first."""
    if is_damaged:
        damaged(logs / "t-0" / f"{0:020}.log")
    listed(monkeypatch, lambda folder: shutil.rmtree(folder, ignore_errors=True) if folder.endswith(f"t-{at}") else None)
    with pytest.raises(KolumnError, match=f"t-{at}: cannot be listed"):
        kolumn.read(logs, threads=2)


def test_a_segment_that_is_replaced_after_it_was_listed_is_refused(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the read could list it again."""
    path = logs / "t-0" / f"{EACH * 3:020}.log"
    decode = SmallSegments.decode

    def decoded(small: SmallSegments, ranges: Any) -> Any:
        data = path.read_bytes()
        path.rename(logs / "kept")
        path.write_bytes(data)
        monkeypatch.setattr(SmallSegments, "decode", decode)
        return decode(small, ranges)

    monkeypatch.setattr(SmallSegments, "decode", decoded)
    with pytest.raises(KolumnError, match="was replaced by another file after the source was listed"):
        kolumn.read(logs, threads=2)


@pytest.mark.parametrize(
    "options",
    [{"threads": 1}, {"start_offset": 1}, {"isolation_level": "read_committed"}, {"topic": "u"}, {"include_deleted_records": False}],
    ids=str,
)
def test_what_needs_the_whole_plan(logs: Path, options: dict[str, Any]) -> None:
    assert ranges_by_folder(logs, Options.of(**{"threads": 2} | options)) is None
    assert ranges_by_folder(logs, Options.of(threads=2)) is not None
    assert ranges_by_folder(logs / "t-0", Options.of(threads=2)) is None
    assert ranges_by_folder([logs], Options.of(threads=2)) is None


@pytest.mark.parametrize("change", ["swap", "another name", "an index alone", "tier", "in a tier"])
def test_what_a_folder_settles_alone_does_not_begin_again(logs: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHANGES[change](logs)
    steps = list[str]()
    listed(monkeypatch, steps.append)
    outcome(logs, 2)
    # Copies in a tier are known by the name of the folder, or of their files; then the source is listed as a whole.
    assert (len(steps) > len(set(steps))) == (change == "in a tier")
