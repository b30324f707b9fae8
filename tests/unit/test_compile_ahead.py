"""Machine code that is compiled ahead: all loops, once for all processes, by processes that end when they should."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kolumn
from kolumn.cpu_fallback.machine import compile_ahead
from kolumn.cpu_fallback.machine.compile_lock import locked

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
LONG = 300
"""Seconds after which a test gives up; no durations are tested."""

# The program compiles a few short loops instead of all, and prints each announcement as a line.
SMALL = """
import json, os, signal, sys
from contextlib import contextmanager
from kolumn.cpu_fallback.machine import compile_ahead, compilers

@contextmanager
def announce(text, steps):
    print(json.dumps([text, steps]), flush=True)
    yield lambda done: None

compile_ahead.GROUPS = {groups}
compile_ahead.announce_by(announce)
"""


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
    program = "print(json.dumps(compile_ahead._ensure('reading')))"
    both = [start(program, tmp_path, reading=("count", "columns.timestamps")) for _ in range(2)]
    told = [[json.loads(line) for line in finish(process)] for process in both]
    assert sorted(lines[-1] for lines in told) == [0, 3]
    compiling = [text for lines in told for text, *_ in lines[:-1] if text.startswith("compiling machine code for reading, once")]
    assert len(compiling) == 1
    assert marks(tmp_path) == {"reading.ready"}
    # All code is there now: nothing is announced, and no call compiles.
    call = """
import numpy as np
from kolumn.cpu_fallback.columns.timestamps import microseconds
microseconds(np.frombuffer(bytes(8), np.int64), np.zeros(1, np.int64), 0)
print(int("numba" in sys.modules))
"""
    assert finish(start(call, tmp_path, reading=("count", "columns.timestamps"))) == ["0"]
    modes = {path.stat().st_mode & 0o022 for path in [tmp_path, *tmp_path.rglob("*")]}
    assert modes == {0}


def test_a_call_has_its_group_compiled(tmp_path: Path) -> None:
    call = """
import numpy as np
from kolumn.cpu_fallback.columns.timestamps import microseconds
microseconds(np.frombuffer(bytes(8), np.int64), np.zeros(1, np.int64), 0)
print(int("numba" in sys.modules))
"""
    *announced, misses = finish(start(call, tmp_path, reading=("columns.timestamps", "check.boundary"), writing=("encode.index",)))
    assert [json.loads(line)[1] for line in announced] == [2]
    assert misses == "0"
    assert marks(tmp_path) == {"reading.ready"}


@pytest.mark.parametrize("thread", [False, True])
def test_ctrl_c_stops_at_once(thread: bool, tmp_path: Path) -> None:
    """A slow loop is being compiled; the signal goes to one process, and the compilation is stopped."""
    program = "compile_ahead.prepare()"
    if thread:
        # At a terminal all processes of the group get the signal: the main thread waits, and another thread has called the loop.
        program = "os.setpgid(0, 0)\nfrom concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n"
        program += "    pool.submit(compile_ahead.prepare).result()"
    process = start(program, tmp_path, reading=("stream",))
    assert process.stdout is not None
    assert "compiling" in process.stdout.readline()
    while not (compilers := children(process.pid)):
        time.sleep(0.01)
    if thread:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert "KeyboardInterrupt" in err
    assert process.returncode in (-signal.SIGINT, 1)
    assert marks(tmp_path) == set()
    # They are killed, and end when the system gets to it.
    until = time.monotonic() + 10
    while any(map(lives, compilers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(lives, compilers))


def test_a_dead_process_holds_no_lock_and_leaves_no_compilers(tmp_path: Path) -> None:
    process = start("compile_ahead.prepare()", tmp_path, reading=("stream",))
    assert process.stdout is not None
    assert "compiling" in process.stdout.readline()
    while not (compilers := children(process.pid)):
        time.sleep(0.01)
    process.kill()
    process.communicate()
    (lock,) = tmp_path.glob("*/lock")
    with locked(lock, waited := Waited()):
        pass
    assert waited.for_ == []
    deadline = time.monotonic() + LONG
    while any(map(lives, compilers)):
        assert time.monotonic() < deadline, "a compiler has survived its parent"
        time.sleep(0.01)


class Waited:
    """Records for which process it waited, and the steps that were reported to it."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.for_: list[tuple[int, int]] = []
        self.steps = 0
        self.then = then

    @contextmanager
    def __call__(self, pid: int, steps: int) -> Iterator[Callable[[int], None]]:
        self.for_.append((pid, steps))
        self.then()
        yield self.step

    def step(self, done: int) -> None:
        self.steps += done


def test_waiting_for_another_process(tmp_path: Path) -> None:
    holder = """
from kolumn.cpu_fallback.machine.compile_lock import locked
from pathlib import Path
with locked(Path(sys.argv[1]), None) as told:
    told(2, 5)
    print("held", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", "import sys\n" + holder, str(tmp_path / "lock")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with locked(tmp_path / "lock", waited := Waited(process.kill)):
            pass
    assert waited.for_ == [(process.pid, 5)]
    assert waited.steps == 2


def test_without_a_folder_the_process_compiles_itself(tmp_path: Path) -> None:
    program = """
import warnings
warnings.simplefilter("ignore")
from kolumn.cpu_fallback.machine import loops
loops.folder = compile_ahead.folder = lambda: None
from kolumn.cpu_fallback.columns.timestamps import microseconds
import numpy as np
target = np.zeros(1, np.int64)
microseconds(np.frombuffer(b"\\1" + bytes(7), np.int64), target, 0)
print(target[0], signal.getsignal(signal.SIGINT) is signal.default_int_handler)
try:
    compile_ahead.warmup()
except Exception as error:
    print(type(error).__name__, "KOLUMN_CACHE_DIR" in str(error))
"""
    announced, result, error = finish(start(program, tmp_path, reading=("columns.timestamps",)))
    assert json.loads(announced) == ["compiling machine code in this process, and only for it", 0]
    assert result == "1000 True"
    assert error == "MissingError True"
    assert list(tmp_path.iterdir()) == []


def test_broken_machine_code_is_compiled_anew(tmp_path: Path) -> None:
    call = """
import numpy as np
from kolumn.cpu_fallback.columns.timestamps import microseconds
microseconds(np.frombuffer(bytes(8), np.int64), np.zeros(1, np.int64), 0)
print(int("numba" in sys.modules))
"""
    finish(start("compile_ahead.prepare()", tmp_path, reading=("columns.timestamps",)))
    for path in tmp_path.glob("*/*.code"):
        path.write_bytes(path.read_bytes()[:100])
    assert finish(start(call, tmp_path, reading=("columns.timestamps",)))[-1] == "1"
    assert finish(start(call, tmp_path, reading=("columns.timestamps",))) == ["0"]


def test_warmup_says_what_it_did(tmp_path: Path) -> None:
    program = "done = compile_ahead.warmup(); print(json.dumps([done.loops, done.compiled, str(done.folder)])); print(done)"
    groups = {"reading": ("columns.timestamps",), "writing": ("encode.index",)}
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


def children(pid: int) -> list[int]:
    """Child processes of a process."""
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def lives(pid: int) -> bool:
    """Whether a process is running; False for a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
