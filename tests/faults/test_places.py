"""File systems that are full or read-only, and targets with leftovers of dead runs, files of living runs, and planted files."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kolumn
from faults.writers import WRITERS, make_source
from kit.command_line import run
from kit.faults import files, records, tree
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.writers.commit.run import Commit, recover
from kolumn.writers.commit.staged_file import StagedFile

COMMANDS = {
    "convert": ("--codec", "none"),
    "compact": (),
    "clean": ("--retention-ms", "99999999999999"),
    "to-parquet": ("--compression", "none"),
}


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of 4 MiB; skipped if this user may not mount one."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"may not mount: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("large") / "log", scale=700)


@pytest.mark.parametrize("name", COMMANDS)
def test_disk_that_is_full(name: str, mounted: Path, large: Path) -> None:
    untouched = tree(large)
    done = run(name, large, *COMMANDS[name], "-o", mounted / "out")
    assert (done.returncode, "No space left on device" in done.stderr, "Traceback" in done.stderr) == (3, True, False), done.stderr
    assert ".kolumn-" not in done.stderr
    assert list(mounted.iterdir()) == []
    assert tree(large) == untouched


def test_write_to_a_disk_that_is_full(mounted: Path, large: Path) -> None:
    table = kolumn.read(large)
    with pytest.raises(KolumnError, match=r"out-0/0{20}\.log: cannot be written: No space left on device"):
        kolumn.write(table.drop(["offset"]), mounted / "out-0")
    assert list(mounted.iterdir()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_disk_that_is_read_only(name: str, mounted: Path, tmp_path: Path) -> None:
    source = make_source(tmp_path / "source")
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    done = run(name, source, *COMMANDS[name], "-o", mounted / "out")
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert "Read-only file system" in done.stderr
    with pytest.raises(KolumnError, match="out-0: cannot be written: Read-only file system"):
        kolumn.write(records(3), mounted / "out-0")


def test_a_run_that_lives_is_left_alone(tmp_path: Path) -> None:
    with Commit(tmp_path) as one:
        with StagedFile(one.place(tmp_path / "a.txt")) as file:
            file.write(b"a")
        with Commit(tmp_path) as other, StagedFile(other.place(tmp_path / "b.txt")) as file:
            file.write(b"b")
        assert files(tree(tmp_path)) == {"b.txt": b"b"}
    assert tree(tmp_path) == {"a.txt": b"a", "b.txt": b"b"}


def test_two_runs_for_one_name(tmp_path: Path) -> None:
    """The run that ends second finds the name taken: it removes nothing of the first one, and leaves none of its own files."""

    def both() -> None:
        with Commit(tmp_path) as one:
            for name in ("a.log", "x.log"):
                with StagedFile(one.place(tmp_path / name)) as file:
                    file.write(b"one")
            with Commit(tmp_path) as other, StagedFile(other.place(tmp_path / "x.log")) as file:
                file.write(b"other")

    with pytest.raises(ArgumentError, match=r"x\.log already exists: another run"):
        both()
    assert tree(tmp_path) == {"x.log": b"other"}


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "a.txt").write_bytes(b"old")
    with Commit(tmp_path, replace=True) as commit:
        for name in ("a.txt", "b.txt"):
            with StagedFile(commit.place(tmp_path / name)) as file:
                file.write(b"new")
    assert tree(tmp_path) == {"a.txt": b"new", "b.txt": b"new"}


def dead(root: Path, content: object, name: str = "redo.json") -> Path:
    """Leftovers of a run that was killed while it gave names."""
    folder = root / f".kolumn-{'0' * 32}.partial"
    (folder / "files").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    (folder / name).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("name", ["../victim.txt", "/victim.txt", "a/../../victim.txt", "a/.."])
def test_a_journal_that_reaches_outside(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_bytes(b"mine")
    root = tmp_path / "root"
    for moves, gone in (({}, [name]), ({f"files/{name}": name}, []), ({name: "victim.txt"}, [])):
        folder = dead(root, {"version": 1, "moves": moves, "gone": gone})
        with pytest.raises(KolumnError, match="no run of Kolumn wrote this"):
            recover(str(root))
        assert tree(tmp_path) == {"victim.txt": b"mine"} | {f"root/{path}": data for path, data in tree(root).items()} | {"root": None}
        shutil.rmtree(folder)


@pytest.mark.parametrize("content", ["", [], {"version": 1, "moves": 3, "gone": []}, {"version": 1, "moves": {}}])
def test_a_journal_of_nobody(tmp_path: Path, content: object) -> None:
    dead(tmp_path, content)
    with pytest.raises(KolumnError, match=r"no run of Kolumn wrote this: .* Find out who put it there, and remove it"):
        recover(str(tmp_path))


def test_what_others_may_write_to_is_no_leftover(tmp_path: Path) -> None:
    folder = dead(tmp_path, {"version": 1, "moves": {}, "gone": []})
    folder.chmod(0o777)
    recover(str(tmp_path))
    assert folder.is_dir()


def test_a_run_of_an_earlier_version_is_undone(tmp_path: Path) -> None:
    """Its journal lists its files by inode, size and time. What it replaced and removed comes back, and files of others stay."""
    for name in ("t-0/named.log", "t-0/replaced.log", "t-0/others.log", "new/named.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"new")
    known = {str(one.relative_to(tmp_path)): one.stat() for one in tmp_path.rglob("*.log")}
    identities = {name: [one.st_ino, one.st_size, one.st_mtime_ns] for name, one in known.items()}
    (tmp_path / "t-0/others.log").write_bytes(b"of another run")
    content = {"files": {**identities, "t-0/staged.log": [1, 2, 3]}, "folders": ["new"], "removed": ["gone/removed.log"]}
    folder = dead(tmp_path, content, "journal")
    (folder / "files" / "t-0").mkdir()
    (folder / "files" / "t-0" / "staged.log").write_bytes(b"new")
    for name in ("t-0/replaced.log", "gone/removed.log"):
        (folder / "replaced" / name).parent.mkdir(parents=True)
        (folder / "replaced" / name).write_bytes(b"old")
    assert [one.action for one in kolumn.tidy(tmp_path, dry_run=True)] == ["undone"]
    assert [one.action for one in kolumn.tidy(tmp_path)] == ["undone"]
    kept = {"t-0/others.log": b"of another run", "t-0/replaced.log": b"old", "gone/removed.log": b"old"}
    assert tree(tmp_path) == {"gone": None, "t-0": None, **kept}
    dead(tmp_path, {"files": {"../victim": [1, 2, 3]}, "folders": [], "removed": []}, "journal")
    assert [one.action for one in kolumn.tidy(tmp_path)] == ["failed"]


def test_a_folder_where_a_file_goes_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(ArgumentError, match="is a folder"), Commit(tmp_path, replace=True) as commit:
        commit.place(tmp_path / "a.parquet")


def test_the_table_has_every_run() -> None:
    assert set(COMMANDS) <= {writer.arguments[0] for writer in WRITERS if writer.arguments}
