"""What a read leaves out is said: where it is, how much it is, and why."""

from pathlib import Path

import kolumn

ID = "0123456789abcdef0123456789abcdef"


def test_each_folder_is_named_with_its_records(disk: Path) -> None:
    report = kolumn.verify(disk)
    assert (report.ok, report.records) == (True, 5)
    found = {
        (Path(one["path"]).relative_to(disk).as_posix(), one["kind"], one["files"], one["records"]) for one in report.left_out.to_pylist()
    }
    assert found == {
        (f"orders-0.{ID}-stray", "stray", 1, 100),
        (f"orders-1.{ID}-delete", "deleted", 1, 50),
        (f"orders-2.{ID}-future", "future", 1, 70),
        ("orders-0/00000000000000000005.log.deleted", "deleted", 2, 7),
    }


def test_what_is_named_is_read(disk: Path) -> None:
    for one in kolumn.verify(disk).left_out.to_pylist():
        assert kolumn.read(one["path"], columns=["offset"]).num_rows == one["records"]
