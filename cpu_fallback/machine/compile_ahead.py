"""Compiles machine code that the package does not bring, in the process that needs it, and stores it for all processes of a user.

this process   ── file lock ──▶  compiles the loops of a group, each in a thread  ──▶  loads them
any other      ── waits for the lock  ─────────────────────────────────────────────▶  loads them
"""

import fcntl
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from kolumn.core.errors import MissingError
from kolumn.cpu_fallback.machine import loops
from kolumn.cpu_fallback.machine.emit import emit
from kolumn.cpu_fallback.machine.loops import LOOPS, entry_of, file_of

logger = logging.getLogger("kolumn")
_Result = TypeVar("_Result")

# Modules that take longest to compile come first, because the last one that `build` starts should be short.
GROUPS = {
    "reading": (
        "stream", "stream_messages", "fields.records", "fields.sound", "check", "inflate.blocks", "count", "machine.checksum",
        "fields.target",
    ),
    "small segments": ("stream_files",),
    "writing": (
        "encode.batches", "encode.messages", "encode.tagged", "encode.sets", "encode.sizes",
        "encode.frames", "encode.key_map", "encode.rewrite", "encode.index",
    ),
    "typed values": ("values.framing",),
    "Avro": ("values.avro",),
    "Protobuf": ("values.protobuf",),
    "JSON": ("values.json",),
}  # fmt: skip
"""Modules of `kolumn.cpu_fallback` with loops, by the task that needs them."""
Announce = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Called with a text and a number of steps, 0 if it is unknown. The yielded function is called with the number of newly done steps."""


@dataclass(frozen=True)
class Warmup:
    """Result of `warmup`.

    Attributes
    ----------
    folder : Path
        Folder of the machine code.
    loops, compiled : int
        Number of all loops, and of those that had to be compiled.
    seconds : float
        Duration of `warmup`.
    """

    folder: Path
    loops: int
    compiled: int
    seconds: float

    def __str__(self) -> str:
        if self.compiled:
            return f"compiled {self.compiled} of {self.loops} loops in {self.seconds:.0f} s: {self.folder}"
        return f"nothing to do, all {self.loops} loops are there: {self.folder}"


def warmup() -> Warmup:
    """Compile all machine code now, so that no later call has to wait for it.

    A package with machine code for this processor needs no warmup. Without it, the loops for reading, or those for writing, are compiled
    when the first of them is called: once for all processes of a user, while the others wait. The code is valid for the processor and
    the versions of Numba and LLVM with which it was compiled.

    Returns
    -------
    Warmup

    Raises
    ------
    MissingError
        There is no folder that only this user can write to, or it cannot be written to any longer.
    """
    start, folder, compiled = time.monotonic(), Path(str(loops.shipped() or loops.folder() or "")), 0
    if folder == Path():
        raise MissingError("there is no folder for machine code: set KOLUMN_CACHE_DIR to a folder that only you can write to")
    for group in GROUPS:
        done = _ensure(group)
        if done is None:
            raise MissingError(f"{folder}: the loops for {group} are missing and could not be stored: see the log of 'kolumn'")
        compiled += done
    return Warmup(folder, sum(len(loops_of(group)) for group in GROUPS), compiled, time.monotonic() - start)


def is_ready(group: str) -> bool:
    """Whether the machine code of one of `GROUPS` is complete."""
    if loops.shipped() is not None:
        return True
    folder = loops.folder()
    return folder is not None and (folder / f"{group}.ready").exists()


def loops_of(group: str) -> list[str]:
    """Names of the loops of a group, as in `kolumn.cpu_fallback.machine.loops.LOOPS`."""
    modules = [f"kolumn.cpu_fallback.{name}" for name in GROUPS[group]]
    for module in modules:
        import_module(module)
    return sorted((name for name in LOOPS if name.split(":")[0] in modules), key=lambda name: modules.index(name.split(":")[0]))


def prepare() -> None:
    """Compile the loops for reading if they can be stored. To be called before threads are started: these do not notice Ctrl-C."""
    _ensure("reading")


def store(folder: Path, loop: str) -> bool:
    """Compile a loop into a folder; False if its code is there."""
    if loops.read(folder / file_of(loop)) is not None:
        return False
    import_module(loop.split(":")[0])
    loops.write(folder / file_of(loop), emit(LOOPS[loop].py_func, entry_of(loop)))
    return True


def object_code(loop: str) -> bytes:
    """Object code of a loop of which none is stored: compiled with all loops of its group, else alone and for this process only."""
    global _has_announced
    module = loop.split(":")[0].removeprefix("kolumn.cpu_fallback.")
    group = next((group for group, modules in GROUPS.items() if module in modules), None)
    if group is not None and _ensure(group) is not None and (code := loops.stored(loop)) is not None:
        return code
    if not _has_announced:
        _has_announced = True
        with _announce("compiling machine code in this process, and only for it", 0):
            pass
    code = _in_thread(partial(emit, LOOPS[loop].py_func, entry_of(loop)))
    folder = loops.folder()
    if folder is not None and group is not None:
        # A file was damaged. If the folder cannot be written to, the next process compiles this loop too.
        with suppress(OSError):
            folder.mkdir(mode=0o755, exist_ok=True)
            loops.write(folder / file_of(loop), code)
    return code


_has_announced = False
_one_group, _one_loop = threading.Lock(), threading.Lock()


def _ensure(group: str) -> int | None:
    """Compile a group; returns how many of its loops had no machine code, or None if it cannot be stored."""
    if is_ready(group):
        return 0
    folder = loops.folder()
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o755, exist_ok=True)
        with _one_group, _locked(folder / "lock"):
            return 0 if is_ready(group) else _compile(folder, group)
    except OSError as error:
        logger.info("machine code cannot be stored: %s", error)
        return None


def _compile(folder: Path, group: str) -> int:
    names, compiled = loops_of(group), 0
    with _announce(f"compiling machine code for {group}, once for this machine, into {folder}", len(names)) as step:
        for name in names:
            compiled += _in_thread(partial(store, folder, name))
            step(1)
    (folder / f"{group}.ready").touch(mode=0o644)
    return compiled


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is created if it is missing; the system releases the lock if this process dies."""
    with open(path, "ab", opener=loops.no_others) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with _announce("another process compiles machine code, waiting for it", 0):
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            # Some network file systems have no locks. Then two processes may compile the same code, which is harmless.
            logger.info("%s: no lock: %s", path, error)
        try:
            yield
        finally:
            # Closing the file is not enough: a process that was forked meanwhile has it open too.
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)


def _in_thread(work: Callable[[], _Result]) -> _Result:
    """Compile in a thread, so that Ctrl-C ends the wait of the main thread: LLVM does not react to signals, and a KeyboardInterrupt in one
    of its callbacks is lost. The thread finishes its loop, and the next compilation waits for that; the end of the process does not."""
    done: Future[_Result] = Future()

    def run() -> None:
        with _one_loop:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

    threading.Thread(target=run, name="kolumn-compiler", daemon=True).start()
    return done.result()


@contextmanager
def _by_log(text: str, steps: int) -> Iterator[Callable[[int], None]]:
    """Log one line. At an interactive prompt it is a warning, so that it is shown to the person who waits."""
    level = logging.WARNING if hasattr(sys, "ps1") or "ipykernel" in sys.modules else logging.INFO
    logger.log(level, "kolumn: %s", text)
    yield lambda done: None


_announce: Announce = _by_log


def announce_by(announce: Announce) -> None:
    """Announce compilation by a function instead of the log."""
    global _announce
    _announce = announce
