"""Processes that compile loops of `kolumn.cpu_fallback`. They read names of loops, and answer when a loop's machine code is stored."""

import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import IO

from kolumn.cpu_fallback.machine import objects
from kolumn.cpu_fallback.machine.emit import emit
from kolumn.cpu_fallback.machine.loops import LOOPS, entry_of, file_of

MOST = 4
"""Most processes at a time. Each takes some 300 MB, and four compile the others in the time that the longest loop takes."""

# sys.path is sent by the pipe, since it may differ from the environment's. With -P no module is imported from the working folder.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.readline());"
    "from kolumn.cpu_fallback.machine.compilers import serve; serve(sys.stdin.readline()[:-1])"
)


class FailedError(Exception):
    """A compiler process ended early."""


class _Compiler:
    def __init__(self, folder: Path, environment: Mapping[str, str], show_errors: bool) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-P", "-c", _PROGRAM]
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=None if show_errors else subprocess.DEVNULL, env={**os.environ, **environment}
        )
        self.give(json.dumps([str(Path(__file__).parents[3]), *(place for place in sys.path if place)]))
        self.give(str(folder))

    @property
    def answers(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def give(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def answer(self) -> int:
        """Its answer to a name: 1 if it had to compile the loop, 0 if the code was there."""
        line = self.answers.readline()
        if line:
            return int(line)
        code = self.process.wait()
        if code == -signal.SIGINT:
            # Ctrl-C at a terminal goes to all processes; this one may wait in a thread that does not notice it.
            raise KeyboardInterrupt
        raise FailedError(f"a process that compiles ended with exit code {code}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()


def compile_all(
    folder: Path, names: list[str], environment: Mapping[str, str] = MappingProxyType({}), show_errors: bool = False
) -> Iterator[int]:
    """Compile loops into a folder, in the order of their names in the list.

    ``environment`` has more variables for the compilers, which print what goes wrong only with ``show_errors``.

    Yields
    ------
    int
        For each finished loop: 1 if it had to be compiled, 0 if its code was there.

    Raises
    ------
    FailedError
        A compiler process ended early.
    OSError
        A process could not be started.
    KeyboardInterrupt
        A compiler was interrupted. Whenever this generator ends, all compilers are killed.
    """
    waiting = deque(names)
    started: list[_Compiler] = []
    with selectors.DefaultSelector() as events:
        try:
            for _ in range(min(MOST, len(os.sched_getaffinity(0)), len(names))):
                started.append(_Compiler(folder, environment, show_errors))
                started[-1].give(waiting.popleft())
                events.register(started[-1].answers, selectors.EVENT_READ, started[-1])
            while events.get_map():
                for key, _ in events.select():
                    new = key.data.answer()
                    if waiting:
                        key.data.give(waiting.popleft())
                    else:
                        events.unregister(key.fileobj)
                    yield new
        finally:
            for compiler in started:
                compiler.end()


_serving = False


def is_one() -> bool:
    """Whether this process is a compiler."""
    return _serving


def serve(folder: str) -> None:
    """Be a compiler that writes to a folder, as long as the parent process exists."""
    global _serving
    _serving = True
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    names: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(names,), daemon=True).start()
    answers = os.dup(1)
    # Anything else that is printed must not be read as an answer.
    os.dup2(2, 1)
    while True:
        name = names.get()
        import_module(name.split(":")[0])
        place = Path(folder, file_of(name))
        done = objects.read(place) is not None
        if not done:
            objects.write(place, emit(LOOPS[name].py_func, entry_of(name)))
        os.write(answers, b"0\n" if done else b"1\n")


def _receive(names: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        names.put(line.strip())
    os._exit(0)
