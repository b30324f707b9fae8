"""One bad record costs one record."""

from pathlib import Path
from typing import Any

import pytest

import kolumn

UNUSUAL = ("bad-utf8-header-key", "neg-key-len", "offset-delta-dup", "record-attr")
"""Topics whose odd record is readable."""
WRONG = {
    "key-over-end": "key length",
    "longer-than-fields": "record length",
    "many-headers": "header count",
    "neg-headers": "header count",
    "null-header-key": "header key length",
    "offset-delta-wrong": "offset delta",
    "varint-6-bytes": "timestamp delta",
}


@pytest.mark.parametrize(
    "options", [{}, {"binary": "view"}, {"threads": 2, "chunk_bytes": 300}, {"columns": ["offset", "headers"]}], ids=str
)
def test_the_others_are_read(disk: Path, options: dict[str, Any]) -> None:
    for codec in ("plain", "gzip"):
        for name in UNUSUAL:
            skipped = kolumn.Skipped()
            assert kolumn.read(disk / f"{name}_{codec}-0", errors="skip", on_damage=skipped, **options).num_rows == 30
            assert not skipped.damage
        for name, field in WRONG.items():
            folder, skipped = disk / f"{name}_{codec}-0", kolumn.Skipped()
            table = kolumn.read(folder, errors="skip", on_damage=skipped, **options)
            assert table["offset"].to_pylist() == [*range(15), *range(16, 30)], folder.name
            (damage,) = skipped.damage
            assert (damage.position, damage.records_lost, damage.base_offset, damage.last_offset) == (750, 1, 15, 15), folder.name
            assert damage.reason.startswith(f"record 5: {field}: expected "), damage.reason
            assert str(skipped).endswith("bytes, 1 record")
            with pytest.raises(kolumn.CorruptBatchError, match=f"base offset 10, record 5: {field}: expected"):
                kolumn.read(folder, **options)


def test_verify_and_recover_count_one_record(disk: Path, tmp_path: Path) -> None:
    folder = disk / "neg-headers_plain-0"
    report = kolumn.verify(folder)
    assert (report.records, report.batches, report.damage["recordsLost"].to_pylist()) == (29, 20, [1])
    done = kolumn.recover(folder, tmp_path / "out")
    (lost,) = done.lost.to_pylist()
    assert (lost["kind"], lost["firstOffset"], lost["lastOffset"], lost["recordsLost"]) == ("unreadable", 15, 15, 1)
    assert done.partitions["records"].to_pylist() == [29]
