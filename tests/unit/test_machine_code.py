"""Machine code that the package brings, for levels of processors, and what it does not bring: compiled once for all processes."""

import fcntl
import json
import logging
import os
import platform
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest

import kolumn
from kit.arm import Processor
from kit.corpus import HERE as CORPUS
from kit.outcome import raises
from kolumn.cpu_fallback.build import compile_all
from kolumn.cpu_fallback.fields.target import microseconds
from kolumn.cpu_fallback.machine import compile_ahead, processor
from kolumn.cpu_fallback.machine.compile import Loop, caller
from kolumn.cpu_fallback.machine.emit import EXTERNAL
from kolumn.cpu_fallback.machine.loops import LOOPS, entry_of, file_of, read

EM_AARCH64 = 183
LEVELS = [name for name, level in processor.LEVELS.items() if processor.host_features().issuperset(level.features)]
BUILD = """
import sys
from kolumn.cpu_fallback import build
from kolumn.cpu_fallback.machine import compile_ahead
build.GROUPS = compile_ahead.GROUPS = {"reading": ("machine.checksum", "fields.target")}
build.main(sys.argv[1], *sys.argv[2:])
"""
USE = """
import json, sys
from pathlib import Path
from kolumn.cpu_fallback.machine import compile_ahead, loops, processor
compile_ahead.GROUPS = {"reading": ("machine.checksum", "fields.target")}
loops.package = lambda: Path(sys.argv[1])
if sys.argv[2:]:
    processor.level = lambda: sys.argv[2]
from kolumn.cpu_fallback.machine.checksum import crc32c
data = bytes(range(256)) * 40
sums = [crc32c(data[:size], at) for size in (0, 1, 17, 64, 255, 10_000) for at in (0, size // 3)]
print(json.dumps([sums, "numba" in sys.modules, loops.shipped() is not None]))
"""


def run(program: str, *arguments: object, **environment: str) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KOLUMN_", "NUMBA_"))}
    variables = {**clean, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def built(place: Path, levels: list[str]) -> Path:
    """A folder with the code of a few loops for these levels, which was built where code of other sources was."""
    old = place / "cpu_fallback" / "compiled" / "x86-64-v3-ofothersources"
    old.mkdir(parents=True)
    said = run(BUILD, old.parent, *levels)
    assert said.splitlines() == [f"compiled 2 of 2 loops for {level}" for level in levels]
    assert sorted(path.name.rpartition("-")[0] for path in old.parent.iterdir()) == sorted(levels)
    return place


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the level that processes of this CPU take; what is there is not built again."""
    place = built(tmp_path_factory.mktemp("package"), LEVELS[:1])
    assert run(BUILD, place / "cpu_fallback" / "compiled", "host") == ""
    return place


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For every level that this CPU has."""
    return built(tmp_path_factory.mktemp("whole"), LEVELS)


def symbols(code: bytes) -> tuple[int, set[str], set[str]]:
    """Of an ELF object of 64 bits: its machine, and the names of the symbols that it defines for others and that it needs."""
    assert code[:6] == b"\x7fELF\x02\x01"
    (machine,), (at,), (size, count) = (struct.unpack_from(form, code, place) for form, place in (("<H", 18), ("<Q", 40), ("<HH", 58)))
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, at + size * i) for i in range(count)]
    ((*_, start, length, names, _, _, each),) = (one for one in sections if one[1] == 2)
    text, defined, needed = sections[names][4], set[str](), set[str]()
    for place in range(start + each, start + length, each):
        name, kind, _, section, _, _ = struct.unpack_from("<IBBHQQ", code, place)
        if kind >> 4:
            (defined if section else needed).add(code[text + name : code.index(0, text + name)].decode())
    return machine, defined, needed


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    place = tmp_path / "cache"
    place.mkdir(mode=0o700)
    return place


def test_code_for_aarch64(tmp_path: Path) -> None:
    """It cannot run here. It is for that machine, has the entry of each loop, and needs what the C library has."""
    assert run(BUILD, tmp_path, processor.ARM) == f"compiled 2 of 2 loops for {processor.ARM}\n"
    files = sorted(tmp_path.glob("*/*.code"))
    assert len(files) == 2
    for path in files:
        machine, defined, needed = symbols(read(path) or b"")
        assert machine == EM_AARCH64
        module, loop = path.name.removesuffix(".code").rsplit(".", 1)
        assert defined == {entry_of(f"kolumn.cpu_fallback.{module}:{loop}")}
        assert needed <= EXTERNAL


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_code_of_every_level(level: str, whole: Path, cache: Path) -> None:
    """It computes what Python computes; nothing is compiled, written or imported for it."""
    data = bytes(range(256)) * 40
    expected = [crc32c.crc32c(data[at:size]) for size in (0, 1, 17, 64, 255, 10_000) for at in (0, size // 3)]
    assert json.loads(run(USE, whole, level, KOLUMN_CACHE_DIR=str(cache))) == [expected, False, True]


def test_nothing_is_written(package: Path, cache: Path) -> None:
    assert json.loads(run(USE, package, KOLUMN_CACHE_DIR=str(cache)))[1:] == [False, bool(LEVELS)]
    assert list(cache.iterdir()) == [] or not LEVELS


@pytest.mark.parametrize("environment", [{"KOLUMN_NATIVE": "1"}, {"NUMBA_OPT": "2"}])
def test_what_asks_for_other_code(environment: dict[str, str], package: Path) -> None:
    program = USE.replace("from kolumn.cpu_fallback.machine.checksum import", "print(loops.shipped()); sys.exit()\nfrom json import")
    assert run(program, package, **environment) == "None\n"


def test_a_file_that_was_cut_off(package: Path, cache: Path, tmp_path: Path) -> None:
    """The loop is compiled; LLVM would end the process over such an object."""
    broken = tmp_path / "broken" / "cpu_fallback" / "compiled"
    (name,) = (path for path in (package / "cpu_fallback" / "compiled").iterdir() if path.name.startswith(LEVELS[0]))
    (broken / name.name).mkdir(parents=True)
    for file in name.iterdir():
        (broken / name.name / file.name).write_bytes(file.read_bytes()[:-50])
        assert read(broken / name.name / file.name) is None
    found = json.loads(run(USE, tmp_path / "broken", KOLUMN_CACHE_DIR=str(cache)))
    assert (found, len(list(cache.glob("*/*.code")))) == ([json.loads(run(USE, package, KOLUMN_CACHE_DIR=str(cache)))[0], True, True], 1)


def test_arguments_are_checked() -> None:
    good = np.zeros(2, np.int64)
    assert microseconds(good, good, 0) == 0
    frozen = good.copy()
    frozen.flags.writeable = False
    assert microseconds(frozen, good, 0) == 0
    for wrong in (good.astype(np.int32), np.zeros(4, np.int64)[::2], good.reshape(1, 2), frozen):
        raises(TypeError, "contiguous array", microseconds, good, wrong, 0)
    with pytest.raises(TypeError, match="missing 1 required"):
        microseconds(good, good)  # type: ignore[call-arg]


ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for another architecture than this one")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`microseconds` by an emulated processor."""
    assert isinstance(microseconds, Loop)
    name, folder = microseconds.name, tmp_path_factory.mktemp("code")
    assert compile_all(folder, [name], processor.ARM) == 1
    code = read(folder / file_of(name))
    assert code is not None
    assert symbols(code)[0] == EM_AARCH64
    return caller(name, LOOPS[name].py_func, Processor().load(code, entry_of(name)))


@ON_X86
def test_one_loop(loop: Any) -> None:
    source = np.arange(-20, 100_000, dtype=np.int64)
    source.flags.writeable = False
    found, expected = (np.zeros(len(source), np.int64) for _ in range(2))
    of_found, of_expected = (np.full(len(source) // 8 + 1, 0xFF, np.uint8) for _ in range(2))
    assert loop(source, found, of_found.ctypes.data) == microseconds(source, expected, of_expected.ctypes.data) == 1
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(of_found, of_expected)
    # A wrong address ends the test, and not the process.
    raises(Exception, r"UC_ERR_(WRITE|READ)_UNMAPPED", loop, source, found, 64)


@ON_X86
@pytest.mark.nightly
def test_every_loop(tmp_path: Path) -> None:
    """Corpora of brokers are read, and segments of every format are written, by either code: rows, reports, and bytes are the same."""
    build = [sys.executable, "-m", "kolumn.cpu_fallback.build", str(tmp_path / "code"), processor.ARM]
    subprocess.run(build, check=True, capture_output=True)
    (code,) = (tmp_path / "code").iterdir()
    native, emulated = answers(tmp_path / "native"), answers(tmp_path / "emulated", code)
    assert (emulated["loops"], len(native["loops"])) == (native["loops"], len(list(code.iterdir())) - 1)
    assert [number for number, pair in enumerate(zip(native["digests"], emulated["digests"], strict=True)) if len(set(pair)) > 1] == []


def answers(scratch: Path, *code: Path) -> Any:
    scratch.mkdir()
    command = [sys.executable, "-m", "kit.every_loop", str(CORPUS), str(scratch), *map(str, code)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


LONG = 300
"""Seconds after which a test gives up; no durations are tested."""

# The program compiles a few short loops instead of all, and prints each announcement as a line. `microseconds` is one of the loops.
PREPARED = """
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
    command = [sys.executable, "-c", PREPARED.replace("{groups}", repr(groups)) + program]
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
    listed = [name for modules in compile_ahead.GROUPS.values() for name in modules]
    assert sorted(listed) == sorted({".".join(path.relative_to(folder).with_suffix("").parts) for path in modules})


def test_annotations_are_what_loops_are_called_with(tmp_path: Path) -> None:
    """Other arguments are an error: a loop has one code, for its annotations."""
    called = answers(tmp_path / "answers")["loops"]
    # Sets of enriched messages are always regrouped, so sets with given bounds are never measured.
    never = ["kolumn.cpu_fallback.encode.tagged:measure"]
    assert sorted({name for group in compile_ahead.GROUPS for name in compile_ahead.loops_of(group)} - set(called)) == never


def test_the_first_compiles_for_all(tmp_path: Path) -> None:
    """Of two processes that start together, one compiles, and the other waits for it and announces that."""
    groups = {"reading": ("fields.target", "machine.checksum"), "writing": ("encode.index",)}
    both = [start("print(json.dumps(compile_ahead._ensure('reading')))", tmp_path, **groups) for _ in range(2)]
    told = [[json.loads(line) for line in finish(process)] for process in both]
    assert sorted(lines[-1] for lines in told) == [0, 2]
    announced = [steps for lines in told for text, steps in lines[:-1] if text.startswith("compiling machine code for reading, once")]
    assert (announced, marks(tmp_path)) == ([2], {"reading.ready"})
    # All code is there now: nothing is announced, and no call compiles.
    assert finish(start(CALL, tmp_path, **groups)) == ["[1000, false]"]
    assert {path.stat().st_mode & 0o022 for path in [tmp_path, *tmp_path.rglob("*")]} == {0}


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
    assert [process.stdout.readline() != "", process.stdout.readline()] == [True, "begun\n"]
    (lock,) = tmp_path.glob("*/lock")
    with open(lock, "rb") as file:
        raises(BlockingIOError, "", fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        assert (process.poll(), marks(tmp_path)) == (None, set())
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
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    if not prompt:
        monkeypatch.delattr(sys, "ps1")
    with caplog.at_level(logging.INFO, "kolumn"), compile_ahead._by_log("compiling", 3) as step:
        step(1)
    (told,) = caplog.records
    assert (told.name, told.levelname, told.message) == ("kolumn", "WARNING" if prompt else "INFO", "kolumn: compiling")
