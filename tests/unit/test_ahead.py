"""Machine code that the package brings: compiled for levels of processors, loaded without Numba; that for AArch64 is run by an emulator."""

import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest

from kit.arm import Processor
from kolumn.cpu_fallback.build import compile_all
from kolumn.cpu_fallback.fields.target import microseconds
from kolumn.cpu_fallback.machine import processor
from kolumn.cpu_fallback.machine.compile import Loop, caller
from kolumn.cpu_fallback.machine.emit import EXTERNAL
from kolumn.cpu_fallback.machine.loops import LOOPS, entry_of, file_of, read

EM_AARCH64 = 183
LEVELS = [name for name, level in processor.LEVELS.items() if processor.host_features().issuperset(level.features)]
SMALL = """
import json, os, sys
from pathlib import Path
from kolumn.cpu_fallback.machine import compile_ahead, loops, processor
compile_ahead.GROUPS = {"reading": ("machine.checksum", "fields.target")}
"""
BUILD = (
    SMALL
    + """
from kolumn.cpu_fallback import build
build.GROUPS = compile_ahead.GROUPS
build.main(sys.argv[1], *sys.argv[2:])
"""
)
USE = (
    SMALL
    + """
loops.package = lambda: Path(sys.argv[1])
if sys.argv[2:]:
    processor.level = lambda: sys.argv[2]
from kolumn.cpu_fallback.machine.checksum import crc32c
data = bytes(range(256)) * 40
sums = [crc32c(data[:size], at) for size in (0, 1, 17, 64, 255, 10_000) for at in (0, size // 3)]
print(json.dumps([sums, "numba" in sys.modules, loops.shipped() is not None]))
"""
)


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


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    place = tmp_path / "cache"
    place.mkdir(mode=0o700)
    return place


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
    import numpy as np

    from kolumn.cpu_fallback.fields.target import microseconds

    good = np.zeros(2, np.int64)
    assert microseconds(good, good, 0) == 0
    frozen = good.copy()
    frozen.flags.writeable = False
    assert microseconds(frozen, good, 0) == 0
    for wrong in (good.astype(np.int32), np.zeros(4, np.int64)[::2], good.reshape(1, 2), frozen):
        with pytest.raises(TypeError, match="contiguous array"):
            microseconds(good, wrong, 0)
    with pytest.raises(TypeError, match="missing 1 required"):
        microseconds(good, good)  # type: ignore[call-arg]


CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"

ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for another architecture than this one")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`microseconds` by an emulated processor."""
    assert isinstance(microseconds, Loop)
    name, folder = microseconds.name, tmp_path_factory.mktemp("code")
    assert compile_all(folder, [name], processor.ARM) == 1
    code = read(folder / file_of(name))
    assert code is not None
    # The machine field of an ELF header: AArch64.
    assert code[18:20] == (183).to_bytes(2, "little")
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


@ON_X86
def test_memory_that_is_not_there(loop: Any) -> None:
    """A wrong address ends the test, and not the process."""
    source = np.full(8, -1, np.int64)
    source.flags.writeable = False
    with pytest.raises(Exception, match=r"UC_ERR_(WRITE|READ)_UNMAPPED"):
        loop(source, np.zeros(8, np.int64), 64)


@ON_X86
@pytest.mark.nightly
def test_every_loop(tmp_path: Path) -> None:
    """Corpora of brokers are read, and segments of every format are written, by either code: rows, reports, and bytes are the same."""
    build = [sys.executable, "-m", "kolumn.cpu_fallback.build", str(tmp_path / "code"), processor.ARM]
    subprocess.run(build, check=True, capture_output=True)
    (code,) = (tmp_path / "code").iterdir()
    native, emulated = _answers(tmp_path / "native"), _answers(tmp_path / "emulated", code)
    assert (emulated["loops"], len(native["loops"])) == (native["loops"], len(list(code.iterdir())) - 1)
    assert [number for number, pair in enumerate(zip(native["digests"], emulated["digests"], strict=True)) if len(set(pair)) > 1] == []


def _answers(scratch: Path, *code: Path) -> Any:
    scratch.mkdir()
    command = [sys.executable, "-m", "kit.every_loop", str(CORPUS), str(scratch), *map(str, code)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)
