"""All records of a log whose offsets go back are returned, and `verify` names the place without calling it damage."""

from pathlib import Path

import pytest

import kolumn

PLACES = {
    "dup": ("19 is followed by 10", 10, 40),
    "overlap": ("29 is followed by 15", 15, 60),
    "back": ("19 is followed by 0", 20, 50),
    "jumpback": ("119 is followed by 50", 10, 40),
    "seg": ("19 is followed by 15", None, 40),
}


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("case", PLACES)
def test_verify_names_the_place(case: str, magic: int, disk: Path) -> None:
    words, repeated, records = PLACES[case]
    folder = disk / f"v{magic}_{case}-0"
    report = kolumn.verify(folder)
    assert (report.ok, report.records) == (True, records)
    [text] = [one["remark"] for one in report.remarks.to_pylist() if one["kind"] == "offsets-back"]
    assert words in text
    assert repeated is None or f"; {repeated} records have an offset that is not above all before" in text
    assert kolumn.read(folder).num_rows == records
