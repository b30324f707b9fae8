"""All loops as machine code, ahead of time: ``python -m kolumn.cpu_fallback.build FOLDER [LEVEL ...]``.

Each level of `kolumn.cpu_fallback.machine.processor.LEVELS` becomes a folder. Without levels, those of this architecture and the one of
AArch64 are compiled; "host" is the level of this CPU. Folders for other sources are removed.
"""

import gc
import os
import platform
import shutil
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from kolumn.cpu_fallback.machine import processor
from kolumn.cpu_fallback.machine.compile_ahead import GROUPS, loops_of, store
from kolumn.cpu_fallback.machine.loops import shipped_name

_PART = ".part"
"""End of the name of a folder that is not complete."""
_MOST = 4
"""Most processes at a time. Each takes some 300 MB, and four compile the others in the time that the longest loop takes."""


def build(target: Path, levels: list[str]) -> None:
    """Compile all loops for some levels into folders of ``target``; what is there already is kept."""
    names = [name for group in GROUPS for name in loops_of(group)]
    known = {f"{shipped_name(level)}{end}" for level in processor.LEVELS for end in ("", _PART)}
    for old in target.iterdir() if target.is_dir() else ():
        if old.name not in known:
            shutil.rmtree(old)
    for level in levels:
        folder = target / shipped_name(level)
        # Under another name until it is complete.
        draft = target / f"{folder.name}{_PART}"
        if folder.is_dir():
            continue
        draft.mkdir(parents=True, exist_ok=True)
        _show(f"Kolumn: compiling machine code for {level}")
        compiled = compile_all(draft, names, level)
        _show("")
        print(f"compiled {compiled} of {len(names)} loops for {level}", flush=True)
        draft.rename(folder)


def compile_all(folder: Path, names: list[str], level: str) -> int:
    """Compile loops for a level by several processes; returns how many had no code in the folder."""
    before, most = dict(os.environ), min(_MOST, len(os.sched_getaffinity(0)))
    # What code is for is chosen when modules are imported, so each process has to start with it.
    os.environ.update(processor.LEVELS[level].environment)
    try:
        with ProcessPoolExecutor(most, get_context("spawn"), _begin) as processes:
            loops = [processes.submit(store, folder, name) for name in names]
            for done, _ in enumerate(as_completed(loops), 1):
                _show(f"Kolumn: compiling machine code for {level}, {done} of {len(names)} loops")
            return sum(loop.result() for loop in loops)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A tenth of the time is that of the garbage collector, which finds little.
    gc.set_threshold(100_000, 50, 50)


def _show(text: str) -> None:
    """Show how far it is, on a line of a terminal that is written over."""
    if sys.stdout.isatty():
        print(f"\r{text}\033[K", end="", flush=True)


def main(target: str, *levels: str) -> None:
    host = processor.level()
    # Code for AArch64 can be compiled anywhere, since it needs no features that Numba would have to know.
    possible = [name for name, level in processor.LEVELS.items() if level.is_arm or platform.machine() != "aarch64"]
    build(Path(target), [level for one in levels or possible if (level := host if one == "host" else one) is not None])


if __name__ == "__main__":
    main(*sys.argv[1:])
