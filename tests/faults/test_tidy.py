"""`kolumn.tidy` and commits: full disks, leftovers of dead runs, files of living runs, and files that Kolumn did not write."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import kolumn
from faults import writers
from faults.writers import WRITERS, make_source
from kit.command_line import run
from kit.faults import files, records, tree
from kit.object_store import objects
from kit.outcome import raises
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.source import storage
from kolumn.writers import outgoing
from kolumn.writers.commit import liveness
from kolumn.writers.commit import run as commit
from kolumn.writers.commit.run import Commit, discard, recover
from kolumn.writers.commit.staged_file import StagedFile

RUN = "0123456789abcdef" * 2


def cli(*args: object) -> tuple[int, str, str]:
    done = run(*args)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def staged(root: Path, name: str, hours: float = 0) -> Path:
    file = root / name / ("a" * 32) / "t-0" / f"{0:020}.log"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"staged")
    (root / name).chmod(0o700)
    for path in (file, *file.parents[:3]):
        os.utime(path, (time.time() - hours * 3600,) * 2)
    return root / name


def actions(source: Any, **options: Any) -> list[str]:
    return [said.action for said in kolumn.tidy(source, **options)]


def stage(commit: Commit, path: Path, data: bytes) -> None:
    with StagedFile(commit.place(path)) as file:
        file.write(data)


def owned(folder: Path, **changed: Any) -> None:
    """Write the owner of a staging folder: this process, or another one."""
    liveness.write_owner(folder, jvm=False)
    (folder / "owner").write_text(json.dumps(json.loads((folder / "owner").read_text()) | changed))


@pytest.mark.parametrize(
    ("owner", "hours", "gone"),
    [
        ({}, 1000, False), ({"pid": None}, 0, True), ({"start": 5}, 0, True), (None, 0, False), (None, 25, True),
        *(({"boot": "another"}, hours, hours > 24) for hours in (0, 23, 25)), ({"namespace": "pid:[1]"}, 0, False),
    ],
)  # fmt: skip
def test_what_a_spark_job_staged(tmp_path: Path, owner: dict[str, Any] | None, hours: float, gone: bool) -> None:
    """It is removed if its owner process is dead or, if that is not known, if it is old."""
    folder = staged(tmp_path, f".kolumn-write.{RUN}.partial")
    if owner is not None:
        with subprocess.Popen([sys.executable, "-c", ""]) as dead:
            pass
        owned(folder, **({"pid": dead.pid} if "pid" in owner else owner))
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - hours * 3600,) * 2)
    found = tree(tmp_path)
    (said,) = kolumn.tidy(tmp_path, dry_run=True)
    assert (said.action == "removed", said.path, tree(tmp_path) == found) == (gone, str(folder), True)
    removed = staged(tmp_path, f".kolumn-write.{'f' * 32}.partial.removed")
    recover(str(tmp_path))
    assert (folder.exists(), removed.exists()) == (not gone, False)


def test_the_owner_is_a_jvm_where_one_is_above(tmp_path: Path) -> None:
    """Spark's data sources run in processes that end before the job, so the owner is the JVM above them."""
    script = f"from kolumn.writers.commit import liveness; from pathlib import Path; liveness.write_owner(Path({str(tmp_path)!r}), True)"
    java = tmp_path / "java"
    java.symlink_to("/bin/sh")
    command = f'{sys.executable} -c "{script}"; read line'
    with subprocess.Popen([java, "-c", command], stdin=subprocess.PIPE) as shell:
        while not (tmp_path / "owner").exists() or not (tmp_path / "owner").read_bytes():
            time.sleep(0.05)
        assert json.loads((tmp_path / "owner").read_bytes())["pid"] == shell.pid
        assert liveness.owner_lives(tmp_path)
        shell.kill()
        shell.wait()
    assert liveness.owner_lives(tmp_path) is False


@pytest.mark.parametrize(
    "name",
    [f".kolumn-{RUN[1:]}.partial", ".kolumn-write.partial", f"kolumn-{RUN}.partial", f".kolumn-write.{RUN}", f"{RUN}.partial", ".kolumn"],
)
@pytest.mark.parametrize("scheme", ["", "objects://"])
def test_what_kolumn_did_not_write(tmp_path: Path, scheme: str, name: str) -> None:
    staged(tmp_path, name, hours=1000)
    staged(tmp_path / "t-0", name, hours=1000)
    (tmp_path / "_kolumn" / "staging" / "mine").mkdir(parents=True)
    (tmp_path / "_kolumn" / "staging" / "mine" / "a.parquet").write_bytes(b"mine")
    (tmp_path / "_kolumn" / "00000001.intent.json.bak").write_bytes(b"mine")
    found = tree(tmp_path)
    assert kolumn.tidy(f"{scheme}{tmp_path}", older_than_hours=0) == []
    assert tree(tmp_path) == found


def test_a_file_or_a_link_where_a_folder_would_be(tmp_path: Path) -> None:
    (tmp_path / f".kolumn-{RUN}.partial").write_text("mine")
    elsewhere = staged(tmp_path / "elsewhere", f".kolumn-write.{RUN}.partial", hours=1000)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / elsewhere.name).symlink_to(elsewhere)
    assert kolumn.tidy(tmp_path) == []
    assert actions(tmp_path / "target", older_than_hours=0) == ["left"]
    assert (elsewhere / ("a" * 32)).is_dir()


def test_runs_that_live(tmp_path: Path) -> None:
    with Commit(tmp_path) as one:
        stage(one, tmp_path / "a.txt", b"a")
        with Commit(tmp_path) as other:
            stage(other, tmp_path / "b.txt", b"b")
        assert files(tree(tmp_path)) == {"b.txt": b"b"}
        assert [(said.action, said.detail) for said in kolumn.tidy(tmp_path)] == [("left", "its run lives")]
    assert tree(tmp_path) == {"a.txt": b"a", "b.txt": b"b"}


def test_beside_and_inside(tmp_path: Path) -> None:
    """A run that writes the folder of a topic-partition stages files next to it; one that writes a segment stages files inside."""
    name = f".kolumn-write.{RUN}.partial.removed"
    outside, inside, deeper = (str(staged(tmp_path / folder, name)) for folder in ("", "t-0", "other/t-0"))
    for source, found in ((tmp_path / "t-0", [outside, inside]), (tmp_path / "t-0" / f"{0:020}.log", [inside])):
        assert [said.path for said in kolumn.tidy(source, dry_run=True)] == found
    assert [said.path for said in kolumn.tidy(tmp_path)] == [outside, inside]
    assert Path(deeper).exists()


def test_staged_files_at_a_url(tmp_path: Path) -> None:
    """Only their age shows whether their run is dead."""
    url = f"objects://{tmp_path}"
    old, young = (staged(tmp_path, f".kolumn-write.{digit * 32}.partial", hours) for digit, hours in (("1", 25), ("2", 23)))
    said = [(said.path, said.action) for said in kolumn.tidy(url, dry_run=True)]
    assert said == [(f"{url}/{old.name}", "removed"), (f"{url}/{young.name}", "left")]
    recover(url)
    assert {name.split("/")[0] for name in objects(tmp_path)} == {young.name}
    recover(url, own=f"{url}/{young.name}")
    assert actions(url, older_than_hours=22) == ["removed"]
    assert objects(tmp_path) == {}


def journal(root: Path, moves: Any, gone: Any = (), **more: Any) -> Path:
    folder = staged(root, f".kolumn-write.{RUN}.partial")
    (folder / "redo.json").write_text(json.dumps({"version": 1, "moves": moves, "gone": gone} | more))
    return folder


GOOD = f"{'a' * 32}/t-0/{0:020}.log"
PLACE = f"t-0/{0:020}.log"


@pytest.mark.parametrize(
    ("moves", "gone"),
    [
        *(({GOOD: to}, []) for to in ("../t-0/stolen.log", f"../{0:020}.log", "/t-0/stolen.log", f"a/b/{0:020}.log", "t-0/other.log", 7)),
        ({"../secret.log": "t-0/secret.log"}, []),
        ({f"{'a' * 32}/../../../secret.log": "t-0/secret.log"}, []),
        ({f"{'a' * 32}/t-0/notes.txt": "t-0/notes.txt"}, []),
        *(({GOOD: PLACE}, gone) for gone in (["../secret.log"], ["secret.log"], ["t-0/notes.txt"], [7], None)),
        (["no", "moves"], []),
    ],
    ids=str,
)
def test_a_journal_that_no_run_wrote(tmp_path: Path, moves: Any, gone: Any) -> None:
    """A user who may write to a target must not be able to choose files that the next run moves and removes."""
    for name in ("secret.log", "target/notes.txt", "target/t-0/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    url, _ = f"objects://{tmp_path / 'target'}", journal(tmp_path / "target", moves, gone)
    found = objects(tmp_path)
    raises(KolumnError, "Kolumn did not write", kolumn.write, records(3), f"{url}/t-1")
    assert actions(url, older_than_hours=0) == ["failed"]
    assert objects(tmp_path) == found


def test_a_journal_is_never_lost(tmp_path: Path) -> None:
    """A URL may name a file system of this machine: the journal is carried out by either name."""
    for name in (str(tmp_path), f"objects://{tmp_path}"):
        folder = journal(tmp_path, {GOOD: PLACE})
        os.utime(folder, (0, 0))
        discard(f"{name}/{folder.name}")
        assert actions(name) == ["completed"]
        assert objects(tmp_path) == {PLACE: b"staged"}
        (tmp_path / PLACE).unlink()


def test_journals_that_cannot_be_carried_out(tmp_path: Path) -> None:
    """The other file and the staged one both stay until a person resolves the conflict."""
    url = f"objects://{tmp_path}"
    folder = journal(tmp_path, {GOOD: PLACE}, version=2)
    (said,) = kolumn.tidy(url)
    assert (said.action, "update it" in said.detail) == ("failed", True)
    shutil.rmtree(folder)
    journal(tmp_path, {GOOD: PLACE})
    (tmp_path / "t-0").mkdir()
    (tmp_path / PLACE).write_bytes(b"others")
    before = objects(tmp_path)
    (said,) = kolumn.tidy(url, older_than_hours=0)
    assert (said.action, "already exists with other contents than" in said.detail) == ("failed", True)
    assert objects(tmp_path) == before
    (tmp_path / PLACE).write_bytes(b"staged")
    assert actions(url) == ["completed"]
    assert objects(tmp_path) == {PLACE: b"staged"}


@pytest.mark.parametrize("name", [f".kolumn-write.{RUN}.partial", f".kolumn-write.{RUN}.partial.removed", f".kolumn-{RUN}.partial"])
def test_leftovers_that_another_run_removes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Jobs that end at the same time list each other's folders; the one that is later finds less than it has listed."""
    for module in (commit, outgoing):
        monkeypatch.setattr(module, "staging_folders", lambda root: [str(tmp_path / name)])
    recover(str(tmp_path))
    assert kolumn.tidy(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_commit_that_lives(tmp_path: Path) -> None:
    """A job's journal is left while its process holds the lock, and carried out by the next run when that has ended."""
    folder = journal(tmp_path, {GOOD: PLACE})
    owned(folder)
    lock = liveness.hold(folder)
    recover(str(tmp_path))
    assert [(said.action, said.detail) for said in kolumn.tidy(tmp_path)] == [("left", "its run lives")]
    os.close(lock)
    recover(str(tmp_path))
    assert objects(tmp_path) == {PLACE: b"staged"}


def test_two_that_append_at_a_url_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look up the end of the log before either gives a name: the second one finds the conflict, and removes nothing."""
    url, other = f"objects://{tmp_path}", b"of the other one"
    real = storage.put

    def put(name: str, data: bytes) -> None:
        real(name, data)
        real(f"{url}/t-0/{0:020}.log", other)

    monkeypatch.setattr(storage, "put", put)
    raises(KolumnError, "already exists with other contents than", kolumn.write, records(30), f"{url}/t-0")
    assert objects(tmp_path) == {f"t-0/{0:020}.log": other}


@pytest.mark.parametrize("write", [writers.append, writers.overwrite], ids=["append", "overwrite"])
def test_two_that_carry_out_one_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    """At a URL it is not known whether a run is dead, so another run may act between any two of its steps."""
    source, real, steps = make_source(tmp_path / "source"), storage.move, 0
    writers.older_logs(source, tmp_path / "alone")
    shutil.rmtree(tmp_path / "alone" / "orders-0")
    shutil.copytree(tmp_path / "alone", tmp_path / "empty")

    def move(name: str, place: str) -> None:
        nonlocal steps
        steps -= 1
        if steps == 0:
            with monkeypatch.context() as inside:
                inside.setattr(storage, "move", real)
                assert "completed" in actions(f"objects://{target}")
        real(name, place)

    write(source, f"objects://{tmp_path / 'alone'}")
    expected = objects(tmp_path / "alone")
    monkeypatch.setattr(storage, "move", move)
    # The first move is that of the journal itself.
    for steps in range(2, 8):
        target = tmp_path / f"target-{steps}"
        shutil.copytree(tmp_path / "empty", target)
        write(source, f"objects://{target}")
        assert steps <= 0
        assert objects(target) == expected


def test_two_commits_to_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits for the first, and is refused after a minute. It looks up the ends of logs after the wait."""
    publish = pytest.importorskip("kolumn.spark_plugin.write.staging")
    monkeypatch.setattr(liveness, "WAIT_S", 0.2)
    pieces, staging = [], str(staged(tmp_path, f".kolumn-write.{RUN}.partial"))
    for name, rows in (("one", 10), ("two", 20)):
        folder = Path(staging, name)
        kolumn.write(records(rows), folder / "t-0")
        pieces.append(publish.StagedSegments("t", 0, str(folder / "t-0"), 0, rows - 1))
    with liveness.committing(tmp_path), pytest.raises(KolumnError, match="another run is writing to it"):
        publish.publish(str(tmp_path), staging, [pieces[0]], overwrite=False)
    publish.publish(str(tmp_path), staging, [pieces[0]], overwrite=False)
    with pytest.raises(ArgumentError, match="ends at offset 10, and records from 0 on were to be appended"):
        publish.publish(str(tmp_path), staging, [pieces[1]], overwrite=False)
    assert kolumn.read(tmp_path / "t-0").num_rows == 10


def test_command(tmp_path: Path) -> None:
    assert cli("tidy", tmp_path) == (0, "nothing to tidy\n", "")
    assert cli("tidy", tmp_path, "--json") == (0, "", "")
    assert cli("tidy", tmp_path / "nothing") == (2, "", f"kolumn: {tmp_path / 'nothing'}: no such folder\n")
    code, _, said = cli("tidy", tmp_path, "--older-than-hours", "-1")
    assert (code, "--older-than-hours" in said) == (2, True)
    folder = staged(tmp_path, f".kolumn-write.{RUN}.partial.removed")
    detail = f"removed: {folder}: staged files of a Spark job that is dead\n"
    assert cli("tidy", "--dry-run", tmp_path) == (0, f"would be {detail}", "")
    assert cli("tidy", tmp_path) == (0, detail, "")
    journal(tmp_path, {GOOD: "../t-0/stolen.log"})
    code, out, said = cli("tidy", f"objects://{tmp_path}", "--json")
    assert (code, json.loads(out)["action"], said) == (3, "failed", "")
    raises(ArgumentError, "older_than_hours=-1", kolumn.tidy, tmp_path, older_than_hours=-1)


COMMANDS = {
    "convert": "--codec none",
    "compact": "",
    "apply-retention": "--retention-ms 99999999999999",
    "to-parquet": "--compression none",
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
def test_disk_that_is_full_and_one_that_is_read_only(name: str, mounted: Path, large: Path) -> None:
    untouched = tree(large)
    for words in ("No space left on device", "Read-only file system"):
        done = run(name, large, *COMMANDS[name].split(), "-o", mounted / "out")
        assert (done.returncode, words in done.stderr) == (3, True), done.stderr
        assert "Traceback" not in done.stderr
        assert ".kolumn-" not in done.stderr
        assert list(mounted.iterdir()) == []
        subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    assert tree(large) == untouched


def test_write_to_a_disk_that_is_full_or_read_only(mounted: Path, large: Path) -> None:
    table = kolumn.read(large).drop_columns(["offset", "topic", "partition"])
    raises(KolumnError, r"out-0/0{20}\.log: cannot be written: No space left on device", kolumn.write, table, mounted / "out-0")
    assert list(mounted.iterdir()) == []
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    raises(KolumnError, "out-0: cannot be written: Read-only file system", kolumn.write, records(3), mounted / "out-0")


def test_two_runs_for_one_name(tmp_path: Path) -> None:
    """The run that ends second finds the name taken: it removes nothing of the first one, and leaves none of its own files."""

    def both() -> None:
        with Commit(tmp_path) as one:
            for name in ("a.log", "x.log"):
                stage(one, tmp_path / name, b"one")
            with Commit(tmp_path) as other:
                stage(other, tmp_path / "x.log", b"other")

    raises(ArgumentError, r"x\.log already exists: another run", both)
    assert tree(tmp_path) == {"x.log": b"other"}


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    (tmp_path / "a.txt").write_bytes(b"old")
    with Commit(tmp_path, replace=True) as commit:
        for name in ("a.txt", "b.txt"):
            stage(commit, tmp_path / name, b"new")
    assert tree(tmp_path) == {"a.txt": b"new", "b.txt": b"new"}
    # A folder where a file goes is never replaced.
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(ArgumentError, match="is a folder"), Commit(tmp_path, replace=True) as commit:
        commit.place(tmp_path / "a.parquet")


def dead(root: Path, content: object, name: str = "redo.json") -> Path:
    """Leftovers of a run that was killed while it gave names."""
    folder = root / f".kolumn-{'0' * 32}.partial"
    (folder / "files").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    (folder / name).write_text(json.dumps(content))
    return folder


def test_a_journal_that_reaches_outside(tmp_path: Path) -> None:
    (tmp_path / "victim.txt").write_bytes(b"mine")
    good, names = {"version": 1, "moves": {}, "gone": []}, ("../victim.txt", "/victim.txt", "a/../../victim.txt", "a/..")
    outside = [more for name in names for more in ({"gone": [name]}, {"moves": {f"files/{name}": name}}, {"moves": {name: "victim.txt"}})]
    for content in ("", [], good | {"moves": 3}, {"version": 1, "moves": {}}, *(good | more for more in outside)):
        folder = dead(tmp_path / "root", content)
        found = tree(tmp_path)
        raises(KolumnError, "Kolumn did not write the entry .* Find out who put it there, and remove it", recover, str(tmp_path / "root"))
        assert {name: data for name, data in tree(tmp_path).items() if not name.endswith("/lock")} == found
        shutil.rmtree(folder)


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
    assert actions(tmp_path, dry_run=True) == actions(tmp_path) == ["undone"]
    kept = {"t-0/others.log": b"of another run", "t-0/replaced.log": b"old", "gone/removed.log": b"old"}
    assert tree(tmp_path) == {"gone": None, "t-0": None, **kept}
    dead(tmp_path, {"files": {"../victim": [1, 2, 3]}, "folders": [], "removed": []}, "journal")
    assert actions(tmp_path) == ["failed"]


def test_the_table_has_every_run() -> None:
    assert set(COMMANDS) <= {writer.arguments[0] for writer in WRITERS if writer.arguments}
