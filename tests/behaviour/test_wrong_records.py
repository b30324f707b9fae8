"""One bad record costs one record: what is read of an entry with a right checksum and a wrong record, and what is said of the rest."""

from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.differential import rows_of
from kit.framed import sound_rows
from kit.oracle import Row
from kit.wrong_records import Case, cases

WAYS: list[dict[str, Any]] = [{}, {"binary": "view"}, {"chunk_bytes": 100}, {"threads": 2, "chunk_bytes": 200}, {"memory_bytes": 300}]
COLUMNS = list(Row._fields)
ALL = pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


@pytest.mark.sample
@ALL
def test_what_can_be_read_is_read(path: Path, case: Case) -> None:
    path.write_bytes(case.data)
    whole = [row for at in _positions(case) for row in sound_rows(case.data[slice(*at)], at[0])] if case.format == "kafka" else None
    for options in WAYS:
        skipped = kolumn.Skipped()
        table = kolumn.read(path, columns=COLUMNS, format=case.format, errors="skip", on_damage=skipped, **options)
        assert table["offset"].to_pylist() == case.offsets
        assert whole is None or rows_of(table) == whole
        (damage,) = skipped.damage
        assert case.lost is None or damage.records_lost == case.lost
        if damage.base_offset is not None and damage.last_offset is not None and case.lost:
            assert 3 <= damage.base_offset <= damage.last_offset <= 12
            assert damage.last_offset - damage.base_offset + 1 >= case.lost


def _positions(case: Case) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(case.data):
        size = 12 + int.from_bytes(case.data[at + 8 : at + 12], "big")
        found.append((at, at + size))
        at += size
    return found


@pytest.mark.sample
@ALL
def test_verify_counts_what_is_read(path: Path, case: Case) -> None:
    path.write_bytes(case.data)
    report = kolumn.verify(path, format=case.format)
    assert (report.records, report.batches, report.damage.num_rows) == (len(case.offsets), 2, 1)
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        kolumn.read(path, format=case.format)
    assert caught.value.field in report.damage["reason"][0].as_py()
    assert caught.value.position == report.damage["position"][0].as_py()


def test_ranges_are_filters(path: Path) -> None:
    (case,) = (case for case in cases() if case.name == "2 0 three")
    path.write_bytes(case.data)
    for start in range(22):
        for end in (start + 1, start + 4, 30):
            table = kolumn.read(path, columns=["offset"], errors="skip", start_offset=start, end_offset=end)
            assert table["offset"].to_pylist() == [one for one in case.offsets if start <= one < end]


@pytest.mark.parametrize("name", ["2 0 three", "2 1 first", "2 0 beyond", "2 0 length", "2 0 no count", "1 last", "0 middle"])
def test_what_is_rewritten_has_no_wrong_records(path: Path, tmp_path: Path, name: str) -> None:
    (case,) = (case for case in cases() if case.name == name)
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / path.name).write_bytes(case.data)
    expected = kolumn.read(folder, errors="skip", columns=["offset", "key", "value", "timestampMs"])
    for magic in (0, 1, 2):
        target = tmp_path / f"converted-{magic}-0"
        skipped = kolumn.convert(folder, target, magic=magic, errors="skip").skipped
        columns = expected.column_names if magic else ["offset", "key", "value"]
        assert kolumn.read(target, columns=columns).equals(expected.select(columns))
        assert (skipped.stretches, skipped.records) == (1, case.lost)
    (tmp_path / "logs").mkdir()
    folder.rename(tmp_path / "logs" / "t-0")
    kolumn.compact(tmp_path / "logs" / "t-0", tmp_path / "compacted-0", errors="skip", include_active=True)
    keyed = [row for row in expected.to_pylist() if row["key"] is not None]
    assert kolumn.read(tmp_path / "compacted-0", columns=expected.column_names).to_pylist() == keyed
    assert kolumn.space(tmp_path / "logs" / "t-0", errors="skip")[0].records == len(expected)


@pytest.mark.parametrize("name", ["2 0 middle", "2 2 middle", "1 middle", "1 first", "1 last", "0 three"])
def test_a_batch_with_a_wrong_record_is_the_same_in_every_copy(tmp_path: Path, name: str) -> None:
    """It is kept byte for byte, and what cannot be read of it is reported once."""
    (case,) = (case for case in cases() if case.name == name)
    copies = [tmp_path / broker / "t-0" for broker in ("one", "two")]
    for folder in copies:
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(case.data)
    skipped = kolumn.Skipped()
    table = kolumn.read(copies, replicas="merge", columns=["offset"], errors="skip", on_damage=skipped)
    assert table["offset"].to_pylist() == case.offsets
    assert (skipped.stretches, skipped.records) == (1, case.lost)
    for source in (copies[0], copies):
        done = kolumn.recover(source, tmp_path / f"recovered-{len(str(source))}")
        (folder,) = done.partitions["folder"].to_pylist()
        assert b"".join(path.read_bytes() for path in sorted(Path(folder).glob("*.log"))) == case.data
        assert [(row["kind"], row["recordsLost"]) for row in done.lost.to_pylist()] == [("unreadable", case.lost)]


def test_lost_records_are_named(path: Path) -> None:
    said = {}
    for case in cases():
        path.write_bytes(case.data)
        said[case.name] = kolumn.verify(path, format=case.format).damage["reason"][0].as_py().split("; ", 1)[1:]
    assert said["2 0 middle"] == ["left out: record 5 (offset 8); 9 other records are read"]
    assert said["2 0 three"] == ["left out: records 1 (offset 4), 2 (offset 5), 8 (offset 11); 7 other records are read"]
    assert said["2 0 all but one"][0].endswith("7 (offset 10), 8 (offset 11); 1 other record is read")
    assert said["2 0 length"] == ["4 other records are read, up to where nobody can tell any more where a record begins"]
    assert said["2 0 too many"] == ["10 records are read"]
    assert said["2 0 all"] == []
    assert said["1 middle"] == ["left out: record 5 (offset 8); 9 other records are read"]


def test_an_error_at_the_end_of_a_segment_says_so() -> None:
    """Each code has a number, and so a text, of its own."""
    error = kolumn.CorruptBatchError("a.log", 7, kolumn.core.errors.Code.SEGMENT_END)
    assert str(error).startswith("a.log: position 7: end of segment: expected entries up to the base offset of the next segment.")
