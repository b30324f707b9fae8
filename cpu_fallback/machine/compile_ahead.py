"""Compiles machine code that the package does not bring, before it is needed, in parallel processes, once for all processes of a user.

    this process   ── lock ──▶  starts `compilers` ──▶  waits; Ctrl-C kills them  ──▶  loads what they have compiled
    any other      ── waits for the lock  ──────────────────────────────────────────▶  loads

Compilation inside the process that needs the code could not be interrupted: LLVM does not react to signals, and a KeyboardInterrupt
inside its callbacks is lost. A process can be killed at any time. So this process compiles loops itself only if no other one can.
"""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kolumn.cpu_fallback.machine import compilers, objects
from kolumn.cpu_fallback.machine.compile_lock import locked
from kolumn.cpu_fallback.machine.loops import LOOPS, entry_of, file_of, folder, shipped
from kolumn.errors import MissingError

logger = logging.getLogger("kolumn")

# Modules that take longest to compile come first, because the last one to start should be short.
GROUPS = {
    "reading": (
        "stream", "stream_messages", "fields.records", "fields.sound", "check.walk", "check.checksums", "inflate.blocks", "count",
        "check.search", "inflate.locate", "check.select", "check.gather", "machine.checksum", "columns.timestamps", "check.boundary",
    ),
    "small segments": ("stream_files",),
    "writing": (
        "encode.batches", "encode.messages", "encode.tagged", "encode.sets", "encode.restride", "encode.sizes",
        "encode.frames", "encode.key_map", "encode.filter", "encode.down_convert", "encode.index",
    ),
    "typed values": ("values.framing",),
    "Avro": ("values.avro",),
    "Protobuf": ("values.protobuf",),
    "JSON": ("values.json", "values.lines"),
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
        There is no folder that only this user can write to, or the loops cannot be compiled by other processes.
    """
    start, place, compiled = time.monotonic(), Path(str(shipped() or folder() or "")), 0
    if place == Path():
        raise MissingError("there is no folder for machine code: set KOLUMN_CACHE_DIR to a folder that only you can write to")
    for group in GROUPS:
        done = _ensure(group)
        if done is None:
            raise MissingError(f"{place}: the loops for {group} are missing and could not be compiled: see the log of 'kolumn'")
        compiled += done
    return Warmup(place, sum(len(loops_of(group)) for group in GROUPS), compiled, time.monotonic() - start)


def is_ready(group: str) -> bool:
    """Whether the machine code of one of `GROUPS` is complete."""
    if shipped() is not None:
        return True
    place = folder()
    return place is not None and _mark(place, group).exists()


def loops_of(group: str) -> list[str]:
    """Names of the loops of a group, as in `kolumn.cpu_fallback.machine.loops.LOOPS`."""
    modules = [f"kolumn.cpu_fallback.{name}" for name in GROUPS[group]]
    for module in modules:
        import_module(module)
    return sorted((name for name in LOOPS if name.split(":")[0] in modules), key=lambda name: modules.index(name.split(":")[0]))


def make(loop: str) -> bool:
    """Compile the group of a loop that has no machine code; False if this process has to compile the loop itself."""
    group = _group_of(loop)
    return group is not None and _ensure(group) is not None


def _group_of(loop: str) -> str | None:
    module = loop.split(":")[0].removeprefix("kolumn.cpu_fallback.")
    return next((group for group, modules in GROUPS.items() if module in modules), None)


def prepare() -> None:
    """Compile the loops for reading, if other processes can do it.

    This must be called before threads are started, because a thread that waits for compilers does not notice Ctrl-C.
    """
    _ensure("reading")


_ensured: set[tuple[Path, str]] = set()
_one_thread = threading.Lock()


def _mark(place: Path, group: str) -> Path:
    return place / f"{group}.ready"


def _ensure(group: str) -> int | None:
    """Compile a group; returns how many of its loops had no machine code, or None if it cannot be compiled ahead."""
    if shipped() is not None:
        return 0
    place = folder()
    if place is None or compilers.is_one():
        return None
    if (place, group) in _ensured:
        return 0
    mark = _mark(place, group)
    try:
        with _one_thread:
            compiled = 0 if mark.exists() else _make_one(place, group, mark)
    except (OSError, compilers.FailedError) as error:
        logger.info("other processes cannot compile machine code: %s", error)
        return None
    _ensured.add((place, group))
    return compiled


def _make_one(place: Path, group: str, mark: Path) -> int:
    place.mkdir(mode=0o755, exist_ok=True)
    with locked(place / "lock", lambda pid, steps: _announce(f"process {pid} compiles machine code, waiting for it", steps)) as told:
        if mark.exists():
            return 0
        names = loops_of(group)
        with _announce(f"compiling machine code for {group}, once for this machine, into {place}", len(names)) as step:
            compiled = 0
            for done, new in enumerate(compilers.compile_all(place, names), 1):
                compiled += new
                step(1)
                told(done, len(names))
        mark.touch(mode=0o644)
    return compiled


@contextmanager
def _by_log(text: str, steps: int) -> Iterator[Callable[[int], None]]:
    """Log one line. At an interactive prompt it is a warning, so that it is shown to the person who waits."""
    level = logging.WARNING if hasattr(sys, "ps1") or "ipykernel" in sys.modules else logging.INFO
    logger.log(level, "kolumn: %s", text)
    yield lambda done: None


_announce: Announce = _by_log
_is_program = False
_began_alone = False


def announce_by(announce: Announce) -> None:
    """Announce compilation by a function instead of the log. For programs: Ctrl-C ends them at once while they compile by themselves."""
    global _announce, _is_program
    _announce, _is_program = announce, True


def compile_alone(loop: str, function: Callable[..., Any]) -> bytes:
    """Compile a loop in this process; returns its object code, which is stored too if it belongs to a group."""
    from kolumn.cpu_fallback.machine.emit import emit

    global _began_alone
    if not _began_alone and not compilers.is_one():
        _began_alone = True
        with _announce("compiling machine code in this process, and only for it", 0):
            pass
    logger.debug("compiling %s", loop)
    _swap_handler(signal.default_int_handler, signal.SIG_DFL)
    try:
        with _one_thread:
            code = emit(function, entry_of(loop))
    finally:
        _swap_handler(signal.SIG_DFL, signal.default_int_handler)
    place = folder()
    if place is not None and _group_of(loop) is not None:
        try:
            place.mkdir(mode=0o755, exist_ok=True)
            objects.write(place / file_of(loop), code)
        except OSError as error:
            logger.info("machine code of %s is not stored: %s", loop, error)
    return code


def _swap_handler(old: object, new: signal.Handlers | Callable[..., object]) -> None:
    if _is_program and threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)
