"""`kolumn.tidy` removes leftovers, but not files of living runs, young files, files that Kolumn did not write, or planted journals."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kolumn
from faults import writers
from faults.writers import export, make_source
from kit.command_line import run
from kit.faults import records, tree
from kit.object_store import objects
from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.source import storage
from kolumn.writers.commit import leftovers, liveness
from kolumn.writers.commit import run as commit
from kolumn.writers.commit.manifest import ExportTarget, Manifest
from kolumn.writers.commit.run import Commit, discard, recover
from kolumn.writers.commit.staged_file import StagedFile

RUN = "0123456789abcdef" * 2


def cli(*args: object) -> tuple[int, str, str]:
    done = run(*args)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def staged(root: Path, name: str, hours: float = 0) -> Path:
    """Create the staging folder of a run, with one file in it."""
    file = root / name / ("a" * 32) / "t-0" / f"{0:020}.log"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"staged")
    (root / name).chmod(0o700)
    for path in (file, *file.parents[:3]):
        os.utime(path, (time.time() - hours * 3600,) * 2)
    return root / name


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def owned(folder: Path, **changed: Any) -> None:
    """Write the owner of a staging folder: this process, or another one."""
    liveness.write_owner(folder, jvm=False)
    (folder / "owner").write_text(json.dumps(json.loads((folder / "owner").read_text()) | changed))


@pytest.mark.parametrize(
    ("owner", "hours", "gone"),
    [
        ({}, 1000, False),
        ({"pid": None}, 0, True),
        ({"start": 5}, 0, True),
        ({"boot": "another"}, 0, False),
        ({"boot": "another"}, 23, False),
        ({"boot": "another"}, 25, True),
        ({"namespace": "pid:[1]"}, 0, False),
        (None, 0, False),
        (None, 25, True),
    ],
)
def test_what_a_spark_job_staged(tmp_path: Path, owner: dict[str, Any] | None, hours: float, gone: bool) -> None:
    """It is removed if its owner process is dead or, if that is not known, if it is old."""
    folder = staged(tmp_path, f".kolumn-write.{RUN}.partial")
    if owner is not None:
        owned(folder, **({"pid": dead_process()} if "pid" in owner else owner))
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - hours * 3600,) * 2)
    found = tree(tmp_path)
    (said,) = kolumn.tidy(tmp_path, dry_run=True)
    assert (said.action == "removed", said.path, tree(tmp_path) == found) == (gone, str(folder), True)
    recover(str(tmp_path))
    assert folder.exists() != gone


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


def test_what_was_being_removed_is_removed(tmp_path: Path) -> None:
    staged(tmp_path, f".kolumn-write.{RUN}.partial.removed")
    recover(str(tmp_path))
    assert tree(tmp_path) == {}


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


def test_a_file_where_a_folder_would_be(tmp_path: Path) -> None:
    (tmp_path / f".kolumn-{RUN}.partial").write_text("mine")
    elsewhere = staged(tmp_path / "elsewhere", f".kolumn-write.{RUN}.partial", hours=1000)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / elsewhere.name).symlink_to(elsewhere)
    assert kolumn.tidy(tmp_path) == []
    assert [one.action for one in kolumn.tidy(tmp_path / "target", older_than_hours=0)] == ["left"]
    assert (elsewhere / ("a" * 32)).is_dir()


def test_a_run_that_lives(tmp_path: Path) -> None:
    with Commit(tmp_path) as one:
        with StagedFile(one.place(tmp_path / "a.txt")) as file:
            file.write(b"a")
        assert [(said.action, said.detail) for said in kolumn.tidy(tmp_path)] == [("left", "its run lives")]
    assert tree(tmp_path) == {"a.txt": b"a"}


def test_an_export_that_lives(tmp_path: Path) -> None:
    (tmp_path / "_kolumn" / "staging" / RUN).mkdir(parents=True)
    with ExportTarget(*storage.file_system(str(tmp_path))).alone():
        assert [(one.action, one.detail) for one in kolumn.tidy(tmp_path)] == [("left", "an export is writing")]
    assert [one.action for one in kolumn.tidy(tmp_path)] == ["removed"]


def test_beside_and_inside(tmp_path: Path) -> None:
    """A run that writes the folder of a topic-partition stages files next to it; one that writes a segment stages files inside."""
    outside = staged(tmp_path, f".kolumn-write.{RUN}.partial.removed")
    inside = staged(tmp_path / "t-0", f".kolumn-write.{RUN}.partial.removed")
    deeper = staged(tmp_path / "other" / "t-0", f".kolumn-write.{RUN}.partial.removed")
    assert [one.path for one in kolumn.tidy(tmp_path / "t-0", dry_run=True)] == [str(outside), str(inside)]
    assert [one.path for one in kolumn.tidy(tmp_path / "t-0" / f"{0:020}.log", dry_run=True)] == [str(inside)]
    assert [one.path for one in kolumn.tidy(tmp_path)] == [str(outside), str(inside)]
    assert deeper.exists()


def test_staged_files_at_a_url(tmp_path: Path) -> None:
    """Only their age shows whether their run is dead."""
    url = f"objects://{tmp_path}"
    old, young = (staged(tmp_path, f".kolumn-write.{digit * 32}.partial", hours) for digit, hours in (("1", 25), ("2", 23)))
    assert [(one.path, one.action) for one in kolumn.tidy(url, dry_run=True)] == [
        (f"{url}/{old.name}", "removed"), (f"{url}/{young.name}", "left"),
    ]  # fmt: skip
    recover(url)
    assert {name.split("/")[0] for name in objects(tmp_path)} == {young.name}
    recover(url, own=f"{url}/{young.name}")
    assert [one.action for one in kolumn.tidy(url, older_than_hours=22)] == ["removed"]
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
        ({GOOD: "../t-0/stolen.log"}, []),
        ({GOOD: f"../{0:020}.log"}, []),
        ({GOOD: "/t-0/stolen.log"}, []),
        ({GOOD: f"a/b/{0:020}.log"}, []),
        ({GOOD: "t-0/other.log"}, []),
        ({"../secret.log": "t-0/secret.log"}, []),
        ({f"{'a' * 32}/../../../secret.log": "t-0/secret.log"}, []),
        ({f"{'a' * 32}/t-0/notes.txt": "t-0/notes.txt"}, []),
        ({GOOD: PLACE}, ["../secret.log"]),
        ({GOOD: PLACE}, ["secret.log"]),
        ({GOOD: PLACE}, ["t-0/notes.txt"]),
        ({GOOD: PLACE}, [7]),
        (["no", "moves"], []),
        ({GOOD: 7}, []),
        ({GOOD: PLACE}, None),
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
    with pytest.raises(KolumnError, match="no run of Kolumn wrote"):
        kolumn.write(records(3), f"{url}/t-1")
    assert [one.action for one in kolumn.tidy(url, older_than_hours=0)] == ["failed"]
    assert objects(tmp_path) == found


def test_a_journal_of_a_later_kolumn(tmp_path: Path) -> None:
    journal(tmp_path, {GOOD: PLACE}, version=2)
    (said,) = kolumn.tidy(f"objects://{tmp_path}")
    assert said.action == "failed"
    assert "update it" in said.detail


def test_a_journal_is_never_lost(tmp_path: Path) -> None:
    """A URL may name a file system of this machine: the journal is carried out by either name."""
    for name in (str(tmp_path), f"objects://{tmp_path}"):
        folder = journal(tmp_path, {GOOD: PLACE})
        os.utime(folder, (0, 0))
        discard(f"{name}/{folder.name}")
        assert [one.action for one in kolumn.tidy(name)] == ["completed"]
        assert objects(tmp_path) == {PLACE: b"staged"}
        (tmp_path / PLACE).unlink()


def test_another_file_that_has_the_name_now(tmp_path: Path) -> None:
    """The other file and the staged one both stay until a person resolves the conflict."""
    journal(tmp_path, {GOOD: PLACE})
    (tmp_path / "t-0").mkdir()
    (tmp_path / PLACE).write_bytes(b"others")
    found = objects(tmp_path)
    (said,) = kolumn.tidy(f"objects://{tmp_path}", older_than_hours=0)
    assert said.action == "failed"
    assert "already exists with other contents than" in said.detail
    assert objects(tmp_path) == found
    (tmp_path / PLACE).write_bytes(b"staged")
    assert [one.action for one in kolumn.tidy(f"objects://{tmp_path}")] == ["completed"]
    assert objects(tmp_path) == {PLACE: b"staged"}


@pytest.mark.parametrize("name", [f".kolumn-write.{RUN}.partial", f".kolumn-write.{RUN}.partial.removed", f".kolumn-{RUN}.partial"])
def test_leftovers_that_another_run_removes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Jobs that end at the same time list each other's folders; the one that is later finds less than it has listed."""

    def staging_folders(root: str) -> list[str]:
        return [str(tmp_path / name)]

    monkeypatch.setattr(commit, "staging_folders", staging_folders)
    monkeypatch.setattr(leftovers, "staging_folders", staging_folders)
    recover(str(tmp_path))
    assert kolumn.tidy(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_commit_that_lives(tmp_path: Path) -> None:
    """A job's journal is left while its process holds the lock, and carried out by the next run when that has ended."""
    folder = journal(tmp_path, {GOOD: PLACE})
    owned(folder)
    lock = liveness.hold(folder)
    recover(str(tmp_path))
    assert [(one.action, one.detail) for one in kolumn.tidy(tmp_path)] == [("left", "its run lives")]
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
    with pytest.raises(KolumnError, match="already exists with other contents than"):
        kolumn.write(records(30), f"{url}/t-0")
    assert objects(tmp_path) == {f"t-0/{0:020}.log": other}


@pytest.mark.parametrize("write", [writers.append, writers.overwrite], ids=["append", "overwrite"])
def test_two_that_carry_out_one_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    """At a URL it is not known whether a run is dead, so another run may act between any two of its steps."""
    source, expected, real, steps = make_source(tmp_path / "source"), [], storage.move, 0
    writers.older_logs(source, tmp_path / "alone")
    shutil.rmtree(tmp_path / "alone" / "orders-0")
    shutil.copytree(tmp_path / "alone", tmp_path / "empty")

    def move(name: str, place: str) -> None:
        nonlocal steps
        steps -= 1
        if steps == 0:
            with monkeypatch.context() as inside:
                inside.setattr(storage, "move", real)
                assert "completed" in [one.action for one in kolumn.tidy(f"objects://{target}")]
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
    publish = pytest.importorskip("kolumn.spark_plugin.write.publish")
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


def test_two_exports_without_locks(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source")
    lake = tmp_path / "lake"
    place = ExportTarget(*storage.file_system(f"objects://{lake}"))
    before = place.open()
    export(source, f"objects://{lake}")
    found = objects(lake)
    with pytest.raises(KolumnError, match="another export has written to it meanwhile"):
        place.publish(before.after([]), {})
    assert objects(lake) == found


def test_an_intent_that_another_one_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ExportTarget(*storage.file_system(f"objects://{tmp_path}"))
    real = ExportTarget._write

    def write(self: ExportTarget, name: str, content: dict[str, Any]) -> None:
        real(self, name, content)
        real(self, name, content | {"moves": {"others": "moves"}})

    monkeypatch.setattr(ExportTarget, "_write", write)
    with pytest.raises(KolumnError, match="another export has written to it meanwhile"):
        place.publish(Manifest(1), {})


def test_staged_parquet_that_somebody_removed(tmp_path: Path) -> None:
    place = ExportTarget(*storage.file_system(str(tmp_path)))
    with pytest.raises(KolumnError, match=r"no longer exists: it was removed\. Nothing was exported"):
        place.publish(Manifest(1), {f"_kolumn/staging/{RUN}/{RUN}.parquet": f"topic=t/partition=0/{0:020}-{RUN}.parquet"})
    assert place.open().number == 0


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
    with pytest.raises(ArgumentError, match="older_than_hours=-1"):
        kolumn.tidy(tmp_path, older_than_hours=-1)
