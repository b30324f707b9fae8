"""Machine code that the package does not bring: compiled once for all processes, and interrupted at any time."""

import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kolumn
from kolumn.cpu_fallback.machine import compile_ahead

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
LONG = 300
"""Seconds after which a test gives up; no durations are tested."""

# The program compiles a few short loops instead of all, and prints each announcement as a line. `microseconds` is one of the loops.
SMALL = """
import json, os, signal, sys, threading, time
from contextlib import contextmanager
import numpy as np
from kolumn.cpu_fallback.machine import compile_ahead, loops

@contextmanager
def announce(text, steps):
    print(json.dumps([text, steps]), flush=True)
    yield lambda done: None

def microseconds():
    from kolumn.cpu_fallback.fields.target import microseconds
    target = np.zeros(1, np.int64)
    microseconds(np.frombuffer(b"\\1" + bytes(7), np.int64), target, 0)
    return int(target[0]), "numba" in sys.modules

compile_ahead.GROUPS = {groups}
compile_ahead.announce_by(announce)
"""
CALL = "print(json.dumps(microseconds()))"


def start(program: str, cache: Path, **groups: tuple[str, ...]) -> subprocess.Popen[str]:
    environment = {**os.environ, "KOLUMN_NATIVE": "1", "KOLUMN_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SMALL.replace("{groups}", repr(groups)) + program]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == 0, err
    return out.splitlines()


def marks(cache: Path) -> set[str]:
    return {path.name for path in cache.glob("*/*.ready")}


def test_every_loop_is_in_a_group() -> None:
    folder = Path(kolumn.__file__).parent / "cpu_fallback"
    modules = [path for path in folder.rglob("*.py") if re.search(r"^@compiled$", path.read_text(), re.MULTILINE)]
    with_loops = {".".join(path.relative_to(folder).with_suffix("").parts) for path in modules}
    listed = [name for modules in compile_ahead.GROUPS.values() for name in modules]
    assert sorted(listed) == sorted(with_loops)


def test_annotations_are_what_loops_are_called_with(tmp_path: Path) -> None:
    """Other arguments are an error: a loop has one code, for its annotations."""
    command = [sys.executable, "-m", "kit.every_loop", str(CORPUS), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    called = json.loads(answer.stdout)["loops"]
    # Sets of enriched messages are always regrouped, so sets with given bounds are never measured.
    never = ["kolumn.cpu_fallback.encode.tagged:measure"]
    assert sorted({name for group in compile_ahead.GROUPS for name in compile_ahead.loops_of(group)} - set(called)) == never


def test_the_first_compiles_for_all(tmp_path: Path) -> None:
    """Of two processes that start together, one compiles, and the other waits for it and announces that."""
    groups = {"reading": ("count", "fields.target"), "writing": ("encode.index",)}
    both = [start("print(json.dumps(compile_ahead._ensure('reading')))", tmp_path, **groups) for _ in range(2)]
    told = [[json.loads(line) for line in finish(process)] for process in both]
    assert sorted(lines[-1] for lines in told) == [0, 3]
    announced = [steps for lines in told for text, steps in lines[:-1] if text.startswith("compiling machine code for reading, once")]
    assert (announced, marks(tmp_path)) == ([3], {"reading.ready"})
    # All code is there now: nothing is announced, and no call compiles.
    assert finish(start(CALL, tmp_path, **groups)) == ["[1000, false]"]
    modes = {path.stat().st_mode & 0o022 for path in [tmp_path, *tmp_path.rglob("*")]}
    assert modes == {0}


def test_a_call_has_its_group_compiled(tmp_path: Path) -> None:
    *announced, result = finish(start(CALL, tmp_path, reading=("fields.target", "machine.checksum"), writing=("encode.index",)))
    assert ([json.loads(line)[1] for line in announced], result, marks(tmp_path)) == ([2], "[1000, true]", {"reading.ready"})


SLOW = """
emit = compile_ahead.emit
def slow(*given):
    print("begun", flush=True)
    go.wait()
    return emit(*given)
go, compile_ahead.emit = threading.Event(), slow
"""


def test_ctrl_c_while_a_loop_is_compiled(tmp_path: Path) -> None:
    """The wait ends at once. What was begun is finished beside, and the next call in the same process uses it."""
    program = """
try:
    compile_ahead.prepare()
except KeyboardInterrupt:
    print("interrupted", flush=True)
threading.Timer(0.5, go.set).start()
print(json.dumps(microseconds()))
"""
    process = start(SLOW + program, tmp_path, reading=("fields.target",))
    assert [json.loads(process.stdout.readline())[1], process.stdout.readline()] == [1, "begun\n"]
    process.send_signal(signal.SIGINT)
    interrupted, announced, result = finish(process)
    assert (interrupted, json.loads(announced)[1], result, marks(tmp_path)) == ("interrupted", 1, "[1000, true]", {"reading.ready"})


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_ends_at_once(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """It does not wait for the loop that is being compiled."""
    program = "sys.argv = ['kolumn', 'warmup']\nfrom kolumn.cli import main\nmain()"
    process = start(SLOW + program, tmp_path, reading=("fields.target",))
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=LONG)
    assert (process.returncode, err, marks(tmp_path)) == (code, ("kolumn: interrupted\n" if code == 130 else ""), set())
    assert finish(start(CALL, tmp_path, reading=("fields.target",)))[-1] == "[1000, true]"


def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    process = start(SLOW + "compile_ahead.prepare()", tmp_path, reading=("fields.target",))
    assert process.stdout.readline()
    assert process.stdout.readline() == "begun\n"
    (lock,) = tmp_path.glob("*/lock")
    with open(lock, "rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.kill()
        process.communicate()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_waiting_for_another_process(tmp_path: Path) -> None:
    """It goes on when the lock is free, and compiles what the other one has not."""
    folder = tmp_path / finish(start("print(loops.version())", tmp_path))[0]
    folder.mkdir()
    with open(folder / "lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = start(CALL, tmp_path, reading=("fields.target",))
        assert json.loads(process.stdout.readline()) == ["another process compiles machine code, waiting for it", 0]
        time.sleep(0.2)
        assert process.poll() is None
        assert marks(tmp_path) == set()
    assert finish(process)[-1] == "[1000, true]"


def test_without_locks_the_process_compiles(tmp_path: Path) -> None:
    program = """
def flock(*given):
    raise OSError(95, "not supported")
compile_ahead.fcntl.flock = flock
"""
    announced, result = finish(start(program + CALL, tmp_path, reading=("fields.target",)))
    assert (json.loads(announced)[1], result, marks(tmp_path)) == (1, "[1000, true]", {"reading.ready"})


def test_without_a_folder_the_process_compiles_for_itself(tmp_path: Path) -> None:
    program = """
loops.folder = lambda: None
print(json.dumps(microseconds()))
try:
    compile_ahead.warmup()
except Exception as error:
    print(type(error).__name__, "KOLUMN_CACHE_DIR" in str(error))
"""
    announced, result, error = finish(start(program, tmp_path, reading=("fields.target",)))
    assert (json.loads(announced), result) == (["compiling machine code in this process, and only for it", 0], "[1000, true]")
    assert (error, list(tmp_path.iterdir())) == ("MissingError True", [])


def test_broken_machine_code_is_compiled_anew(tmp_path: Path) -> None:
    finish(start("compile_ahead.prepare()", tmp_path, reading=("fields.target",)))
    for path in tmp_path.glob("*/*.code"):
        path.write_bytes(path.read_bytes()[:100])
    assert finish(start(CALL, tmp_path, reading=("fields.target",)))[-1] == "[1000, true]"
    assert finish(start(CALL, tmp_path, reading=("fields.target",))) == ["[1000, false]"]


def test_warmup_says_what_it_did(tmp_path: Path) -> None:
    program = "done = compile_ahead.warmup(); print(json.dumps([done.loops, done.compiled, str(done.folder)])); print(done)"
    groups = {"reading": ("fields.target",), "writing": ("encode.index",)}
    first = finish(start(program, tmp_path, **groups))
    (folder,) = tmp_path.iterdir()
    assert json.loads(first[-2]) == [2, 2, str(folder)]
    assert first[-1].startswith("compiled 2 of 2 loops in ")
    assert finish(start(program, tmp_path, **groups))[-1] == f"nothing to do, all 2 loops are there: {folder}"


@pytest.mark.parametrize("prompt", [False, True])
def test_the_library_says_it_by_its_log(prompt: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delattr(sys, "ps1", raising=False)
    if prompt:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with caplog.at_level(logging.INFO, "kolumn"), compile_ahead._by_log("compiling", 3) as step:
        step(1)
    assert [(record.name, record.levelname, record.message) for record in caplog.records] == [
        ("kolumn", "WARNING" if prompt else "INFO", "kolumn: compiling")
    ]
