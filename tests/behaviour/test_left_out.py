"""Files and folders that a read does not return are listed, each with its reason."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import kolumn
from behaviour.test_loader import FOLDERS
from kit.command_line import run
from kit.loader_folders import Files, content, random_files, real_name, write
from kolumn.core.errors import ArgumentError
from kolumn.tools.overview import overview
from kolumn.tools.report.gather import gather

LOG = "00000000000000000000.log"
ID = "0123456789abcdef0123456789abcdef"


def disk(folder: Path) -> Path:
    """A log directory with one partition of five records."""
    write(folder / "t-0", {"0.log": [0, 5], "0.index": 0, "=leader-epoch-checkpoint": 0, "5.snapshot": 0})
    (folder / "meta.properties").touch()
    return folder


def left_out(folder: Path) -> list[tuple[str, str, int | None, int | None]]:
    rows = kolumn.verify(folder).left_out.to_pylist()
    return [(os.path.relpath(one["path"], folder), one["kind"], one["files"], one["records"]) for one in rows]


def test_nothing_is_left_out_of_a_healthy_directory(tmp_path: Path) -> None:
    assert left_out(disk(tmp_path / "d")) == []


@pytest.mark.sample
@pytest.mark.parametrize(
    "files",
    [*(one["files"] for one in FOLDERS), *(random_files(seed) for seed in range(2000, 2040))],
)
def test_every_log_is_either_read_or_left_out(files: Files, tmp_path: Path) -> None:
    write(tmp_path / "t-0", files)
    try:
        report = kolumn.verify(tmp_path / "t-0")
    except ArgumentError:
        # There is no segment in it.
        return
    read = {Path(path).name for path in report.segments["segment"].to_pylist()}
    rows = {Path(one["path"]).name: one for one in report.left_out.to_pylist()}
    logs = {
        real_name(name): offsets for name, offsets in files.items() if name.endswith((".log", ".log.swap", ".log.cleaned", ".log.deleted"))
    }
    assert not read & rows.keys()
    assert logs.keys() <= read | rows.keys()
    for name in logs.keys() & rows.keys():
        assert rows[name]["records"] == (len(range(*logs[name])) if logs[name] else 0)


def test_a_segment_that_a_swap_file_replaces(tmp_path: Path) -> None:
    write(tmp_path / "t-0", {"0.log": [0, 10], "10.log": [10, 12], "0.log.swap": [5, 10], "20.log": [20, 21]})
    assert left_out(tmp_path / "t-0") == [(LOG, "replaced", 1, 10)]


def test_files_of_a_compaction_that_was_not_finished(tmp_path: Path) -> None:
    write(tmp_path / "t-0", {"0.log": [0, 10], "10.log": [10, 12], "0.log.cleaned": [5, 10], "0.index.cleaned": 0, "10.log.swap": [10, 11]})
    assert left_out(tmp_path / "t-0") == [
        (f"{LOG}.cleaned", "unfinished", 2, 5),
        ("00000000000000000010.log.swap", "unfinished", 1, 1),
    ]


def test_what_is_no_broker_s(tmp_path: Path) -> None:
    source = disk(tmp_path / "d")
    (source / "t-0" / "notes.txt").write_text("notes")
    write(source / "backup" / "t-0", {"0.log": [0, 3]})
    write(source / "old", {"0.log": [0, 4], "0.index": 0})
    (source / "old" / "deeper").mkdir()
    assert left_out(source) == [("backup", "foreign", 1, 3), ("old", "foreign", 2, 4), ("t-0/notes.txt", "foreign", 1, None)]
    reasons = kolumn.verify(source).left_out["reason"].to_pylist()
    assert [one.endswith("what is in its folders is not counted") for one in reasons] == [False, True, False]


def test_a_link_to_nothing(tmp_path: Path) -> None:
    source = disk(tmp_path / "d")
    (source / "t-0" / "00000000000000000005.log").symlink_to(tmp_path / "unmounted")
    os.mkfifo(source / "t-0" / "00000000000000000007.log")
    assert left_out(source) == [(f"t-0/{number:020}.log", "unusable", 1, None) for number in (5, 7)]


def test_what_is_named_too_is_not_left_out(tmp_path: Path) -> None:
    source = disk(tmp_path / "d")
    write(source / f"t-1.{ID}-stray", {"0.log": [0, 3]})
    write(source / "t-2.short-delete", {"0.log": [0, 4], "4.log": [4, 5], "9.log.deleted": [9, 10]})
    report = kolumn.verify([source, source / f"t-1.{ID}-stray", os.path.relpath(source / "t-2.short-delete" / LOG)])
    assert report.records == 5 + 3 + 4
    assert [(one["kind"], one["files"], one["records"]) for one in report.left_out.to_pylist()] == [("deleted", 2, 1)]


def test_records_that_headers_do_not_tell(tmp_path: Path) -> None:
    source = disk(tmp_path / "d")
    (source / "t-0" / "00000000000000000005.log.deleted").write_bytes(b"no segment" * 20)
    (source / "t-0" / "00000000000000000009.log.deleted").write_bytes(content("x", [9, 12])[:-3])
    assert [one[3] for one in left_out(source)] == [None, 2]


def test_only_states_are_there(tmp_path: Path) -> None:
    write(tmp_path / "d" / f"t-1.{ID}-stray", {"0.log": [0, 3]})
    with pytest.raises(ArgumentError, match=f"t-1.{ID}-stray' is a stray replica, which is read if it is named"):
        kolumn.verify(tmp_path / "d")
    write(tmp_path / "t-0", {"0.index": 0, "0.log.deleted": [0, 3]})
    with pytest.raises(ArgumentError, match=r"0\.log\.deleted' is a segment that brokers delete, which is read if it is named"):
        kolumn.verify(tmp_path / "t-0")


def test_every_command_says_so_and_its_exit_code_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOLUMN_OUTPUT", "text")
    source = disk(tmp_path / "d")
    write(source / f"t-1.{ID}-future", {"0.log": [0, 3]})
    rows = kolumn.verify(source).left_out.to_pylist()
    assert [one["records"] for one in rows] == [3]
    assert overview(source).left_out == gather(source).left_out == rows
    assert kolumn.recover(source, tmp_path / "out").left_out.to_pylist() == rows
    commands: list[list[Any]] = [["verify"], ["recover"], ["overview"]]
    for command in commands:
        target = ["-o", tmp_path / "again"] if command == ["recover"] else []
        done = run(*command, "--json", source, *target)
        assert (done.returncode, json.loads(done.stdout)["leftOut"]) == (0, rows)
        target = ["-o", tmp_path / "text"] if command == ["recover"] else []
        done = run(*command, source, *target)
        assert done.returncode == 0
        assert f"t-1.{ID}-future" in done.stdout
        assert rows[0]["reason"] in done.stdout
    page = tmp_path / "page.html"
    assert run("report", source, "-o", page).returncode == 0
    assert rows[0]["reason"] in page.read_text()
