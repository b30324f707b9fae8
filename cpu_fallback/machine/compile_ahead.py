"""Machine code before it is needed: processes of their own compile side by side, once for all, and can be killed at any time.

    this process   ── lock ──▶  starts `compilers` ──▶  waits; Ctrl-C kills them  ──▶  loads what they have compiled
    any other      ── waits for the lock  ──────────────────────────────────────────▶  loads

Compilation in the process that needs the code could not be interrupted: LLVM does not look at signals, and a KeyboardInterrupt inside of
one of its callbacks is lost. That is left to where nothing else can be done.
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

from kolumn.cpu_fallback.machine import compilers
from kolumn.cpu_fallback.machine.compile_lock import locked
from kolumn.cpu_fallback.machine.loops import LOOPS, folder
from kolumn.errors import MissingError

logger = logging.getLogger("kolumn")

# What takes longest comes first: the last one to be begun should be short.
GROUPS = {
    "reading": (
        "stream", "fields.records", "check.walk", "check.checksums", "inflate.blocks", "count", "check.search", "inflate.locate",
        "check.select", "columns.columns", "machine.checksum", "columns.timestamps",
    ),
    "writing": ("encode.batches", "encode.messages", "encode.tagged", "encode.sets", "encode.restride"),
}  # fmt: skip
"""Modules of `kolumn.cpu_fallback` with loops, by what needs them."""

Announce = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Is told what is going on and in how many steps, 0 for unknown; what it yields is told how many more of them are done."""


@dataclass(frozen=True)
class Warmup:
    """Result of `warmup`.

    Attributes
    ----------
    folder : Path
        Where the machine code lies.
    loops, compiled : int
        How many loops there are, and how many of them had to be compiled.
    seconds : float
        Time that it took.
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
    """Compile all machine code now, so that nothing waits for it later.

    Without it the loops for reading, or those for writing, are compiled when the first of them is called: once for all processes of
    a user, while the others wait. The code is for the processor, the Python and the Numba that it was compiled with.

    Returns
    -------
    Warmup

    Raises
    ------
    MissingError
        No folder exists that only this user can write to, or no process could be started.
    """
    start, place, compiled = time.monotonic(), folder(), 0
    if place is None:
        raise MissingError("machine code can be kept nowhere: set KOLUMN_CACHE_DIR to a folder that only you can write to")
    for group in GROUPS:
        done = _ensure(group)
        if done is None:
            raise MissingError(f"{place}: the loops for {group} are not there, and can't be compiled ahead: see the log of 'kolumn'")
        compiled += done
    return Warmup(place, sum(len(loops_of(group)) for group in GROUPS), compiled, time.monotonic() - start)


def is_ready(group: str) -> bool:
    """Whether the machine code of one of `GROUPS` is there."""
    place = folder()
    return place is not None and _mark(place, group).exists()


def loops_of(group: str) -> list[str]:
    """Names of the loops of a group, as in `kolumn.cpu_fallback.machine.loops.LOOPS`."""
    modules = [f"kolumn.cpu_fallback.{name}" for name in GROUPS[group]]
    for module in modules:
        import_module(module)
    return sorted((name for name in LOOPS if name.split(":")[0] in modules), key=lambda name: modules.index(name.split(":")[0]))


def make(loop: str) -> bool:
    """Compile the group of a loop that has no machine code; False where this process has to compile it itself."""
    module = loop.split(":")[0].removeprefix("kolumn.cpu_fallback.")
    groups = [group for group, modules in GROUPS.items() if module in modules]
    return bool(groups) and _ensure(groups[0]) is not None


def prepare() -> None:
    """Have the loops for reading compiled, if that can be done ahead.

    To be called before threads are started: a thread that waits for compilers would not notice Ctrl-C.
    """
    _ensure("reading")


_ensured: set[Path] = set()
_one_thread = threading.Lock()


def _mark(place: Path, group: str) -> Path:
    return place / f"{group}.ready"


def _ensure(group: str) -> int | None:
    """Have a group compiled; returns how many of its loops were not there, or None where it can't be compiled ahead."""
    place = folder()
    if place is None or compilers.is_one():
        return None
    mark = _mark(place, group)
    if mark in _ensured:
        return 0
    try:
        with _one_thread:
            compiled = 0 if mark.exists() else _make_one(place, group, mark)
    except (OSError, compilers.FailedError) as error:
        logger.info("machine code can't be compiled ahead: %s", error)
        return None
    _ensured.add(mark)
    return compiled


def _make_one(place: Path, group: str, mark: Path) -> int:
    place.mkdir(mode=0o755, exist_ok=True)
    with locked(place / "lock", lambda pid, steps: _announce(f"process {pid} compiles machine code, waiting for it", steps)) as told:
        if mark.exists():
            return 0
        names = loops_of(group)
        with _announce(f"compiling machine code for {group}, once for this machine, into {place}", len(names)) as step:
            compiled = 0
            for done, new in enumerate(compilers.compile_all(place.parent, names), 1):
                compiled += new
                step(1)
                told(done, len(names))
        mark.touch(mode=0o644)
    return compiled


@contextmanager
def _by_log(text: str, steps: int) -> Iterator[Callable[[int], None]]:
    """One line in the log. At an interactive prompt the line is shown, because a person waits."""
    level = logging.WARNING if hasattr(sys, "ps1") or "ipykernel" in sys.modules else logging.INFO
    logger.log(level, "kolumn: %s", text)
    yield lambda done: None


_announce: Announce = _by_log
_is_program = False
_began_alone = False


def announce_by(announce: Announce) -> None:
    """Have compilation announced otherwise than by the log. For programs: where they compile by themselves, Ctrl-C ends them at once."""
    global _announce, _is_program
    _announce, _is_program = announce, True


def begin_alone(loop: str) -> None:
    """To be called before this process compiles a loop itself."""
    global _began_alone
    if not _began_alone and not compilers.is_one():
        _began_alone = True
        with _announce("compiling machine code in this process and for it alone", 0):
            pass
    logger.debug("compiling %s", loop)
    _swap_handler(signal.default_int_handler, signal.SIG_DFL)


def end_alone() -> None:
    """To be called after that."""
    _swap_handler(signal.SIG_DFL, signal.default_int_handler)


def _swap_handler(old: object, new: signal.Handlers | Callable[..., object]) -> None:
    if _is_program and threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)
