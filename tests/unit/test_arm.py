"""Machine code for AArch64, run by an emulator: it answers what the code for this processor answers."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.arm import Processor
from kolumn.cpu_fallback.build import compile_all
from kolumn.cpu_fallback.columns.timestamps import microseconds
from kolumn.cpu_fallback.machine import processor
from kolumn.cpu_fallback.machine.compile import Loop, caller
from kolumn.cpu_fallback.machine.loops import LOOPS, entry_of, file_of, read

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for another architecture than this one")


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


def test_one_loop(loop: Any) -> None:
    source = np.arange(-20, 100_000, dtype=np.int64)
    source.flags.writeable = False
    found, expected = (np.zeros(len(source), np.int64) for _ in range(2))
    of_found, of_expected = (np.full(len(source) // 8 + 1, 0xFF, np.uint8) for _ in range(2))
    assert loop(source, found, of_found.ctypes.data) == microseconds(source, expected, of_expected.ctypes.data) == 1
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(of_found, of_expected)


def test_memory_that_is_not_there(loop: Any) -> None:
    """A wrong address ends the test, and not the process."""
    source = np.full(8, -1, np.int64)
    source.flags.writeable = False
    with pytest.raises(Exception, match=r"UC_ERR_(WRITE|READ)_UNMAPPED"):
        loop(source, np.zeros(8, np.int64), 64)


@pytest.mark.nightly
def test_every_loop(tmp_path: Path) -> None:
    """Corpora of brokers are read, and segments of every format are written, by either code: rows, reports, and bytes are the same."""
    build = [sys.executable, "-m", "kolumn.cpu_fallback.build", str(tmp_path / "code"), processor.ARM]
    subprocess.run(build, check=True, capture_output=True)
    (code,) = (tmp_path / "code").iterdir()
    native, emulated = _answers(tmp_path / "native"), _answers(tmp_path / "emulated", code)
    assert emulated["loops"] == native["loops"]
    assert len(native["loops"]) == len(list(code.iterdir())) - 1
    assert [number for number, pair in enumerate(zip(native["digests"], emulated["digests"], strict=True)) if len(set(pair)) > 1] == []


def _answers(scratch: Path, *code: Path) -> Any:
    scratch.mkdir()
    command = [sys.executable, "-m", "kit.every_loop", str(CORPUS), str(scratch), *map(str, code)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)
