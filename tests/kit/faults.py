"""Every file operation of a writer is a numbered step, at which a test lets something happen.

A warm process has imported and compiled everything; for each run it forks a child. In the child the functions of `os` that change
files are counted. At the step that a test names, the process is killed (half of a write is written before), gets a signal, or the
operation fails. `fsync` is counted but not done: a kill does not need it, and the order of steps says whether it was asked for.
"""

import errno
import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

COUNTED = (
    *("open", "write", "copy_file_range", "fsync", "chmod", "fchmod", "mkdir"),
    *("rename", "replace", "link", "symlink", "unlink", "remove", "rmdir"),
)
MAKES = ("open", "write", "copy_file_range", "fsync", "mkdir", "rename", "replace", "link")
"""Steps that a full disk, or one that fails, can refuse."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_STAGED = ".kolumn-"


@dataclass(frozen=True)
class Writer:
    """Something that writes below a target folder, by the command line's arguments or by a function."""

    name: str
    arguments: tuple[str, ...] = ()  # with ``{source}`` and ``{target}``
    function: Callable[[Path, str], Any] | None = None  # in place of arguments, with the source and the name of the target
    before: Callable[[Path, Path], Any] | None = None  # brings the target into the state that the writer finds
    replaces: bool = False  # whether a second run over a complete target is right, too
    refuses: str = "already exists"  # part of the error message otherwise
    scheme: str = ""  # of the URL, if the writer gets one of the target

    def run(self, source: Path, target: Path) -> int:
        """Write, and return the exit code."""
        from kolumn.cli import app
        from kolumn.cli.ending import exit_code_of, prepare_process

        name = f"{self.scheme}{target}"
        if self.function is not None:
            return exit_code_of(partial(self._call, source, name))
        prepare_process()
        arguments = [one.format(source=source, target=name) for one in self.arguments]
        try:
            app(arguments)
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    def _call(self, source: Path, target: str) -> int:
        assert self.function is not None
        self.function(source, target)
        return 0


@dataclass(frozen=True)
class Step:
    """A file operation: what it is called, and the file, or the name that it makes."""

    name: str
    path: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the exit code, negative for the signal that killed it, its steps, and what it said."""

    code: int
    steps: list[Step]
    text: str


def records(count: int) -> pa.Table:
    return pa.table(
        {
            "key": [b"key-%d" % (i % 7) for i in range(count)],
            "value": [hashlib.sha256(b"%d" % i).digest() * 2 for i in range(count)],
            "timestampMs": pa.array([1_700_000_000_000 + i for i in range(count)], pa.int64()),
        }
    )


def tree(folder: Path) -> dict[str, bytes | None]:
    """Files with what is in them, and folders, below a folder; leftovers too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def files(found: dict[str, bytes | None], hidden: bool = False) -> dict[str, bytes]:
    """The files of a tree that have their names, or with ``hidden`` those that nobody sees."""
    return {name: data for name, data in found.items() if data is not None and (_STAGED in name) == hidden}


class Steps:
    """Counts operations in this process, and lets the action happen at one of them."""

    def __init__(self, at: int, action: str, scratch: str) -> None:
        self.at, self.action, self.scratch = at, action, scratch
        self.done: list[Step] = []
        self.names: dict[int, str] = {}

    def install(self) -> None:
        """Replace the functions; only for a process that ends soon."""
        for name in COUNTED:
            setattr(os, name, partial(self._step, name, getattr(os, name)))
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike) or not (arguments[2] or 0) & _WRITES:
            return
        name = os.fsdecode(arguments[0])
        if name.startswith(self.scratch) and _STAGED not in name:
            os._exit(96)  # a file is opened for writing under the name that it has for readers

    def _step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        path = self._path(name, args)
        # What is not below the target, like a cache or standard error, is no step; names in an open folder are relative.
        if (name == "open" and not args[1] & _WRITES) or (not path.startswith(self.scratch) and "dir_fd" not in kwargs):
            result = function(*args, **kwargs)
            if name == "open":
                self.names[result] = path
            return result
        self.done.append(Step(name, path))
        if len(self.done) == self.at:
            self._act(name, function, args)
        if name == "fsync":
            return None
        result = function(*args, **kwargs)
        if name == "open":
            self.names[result] = path
        return result

    def _act(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.action == "kill":
            if name == "write":
                function(args[0], args[1][: len(args[1]) // 2])
            elif name == "copy_file_range":
                function(*args[:2], args[2] // 2, *args[3:])
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action in ("SIGTERM", "SIGINT"):
            os.kill(os.getpid(), signal.Signals[self.action])
        elif self.action == "full" and name in MAKES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _path(self, name: str, args: tuple[Any, ...]) -> str:
        if isinstance(args[0], int):
            return self.names.get(args[1] if name == "copy_file_range" else args[0], "")
        return os.fspath(args[1] if name in ("rename", "replace", "link", "symlink") else args[0])


class Warm:
    """The process whose children run writers."""

    def __enter__(self) -> "Warm":
        context = multiprocessing.get_context("spawn")
        self._asked, connection = context.Pipe()
        self._process = context.Process(target=serve, args=(connection,), daemon=True)
        self._process.start()
        connection.close()
        return self

    def __exit__(self, *error: object) -> None:
        self._asked.close()
        self._process.join(60)

    @contextmanager
    def on_one_core(self) -> Iterator[None]:
        """Writers have one thread meanwhile: the steps of several come in another order each time."""
        cores = os.sched_getaffinity(self._process.pid)
        os.sched_setaffinity(self._process.pid, {min(cores)})
        try:
            yield
        finally:
            os.sched_setaffinity(self._process.pid, cores)

    def run(self, writer: Writer, source: Path, target: Path, at: int = 0, action: str = "", mask: int | None = None) -> Outcome:
        """Run a writer, with this umask; at the step with this number, from 1 on, the action happens."""
        self._asked.send((writer.name, source, target, at, action, mask))
        outcome: Outcome = self._asked.recv()
        assert outcome.code != 96, "a file was opened for writing under its final name"
        return outcome


def serve(requests: Connection) -> None:
    """Main loop of the warm process: it runs each writer once, then what is asked for."""
    from faults.writers import WRITERS, make_source

    by_name = {writer.name: writer for writer in WRITERS}
    with tempfile.TemporaryDirectory() as folder:
        source = make_source(Path(folder, "source"))
        for writer in by_name.values():
            target = Path(folder, writer.name)
            if writer.before is not None:
                writer.before(source, target)
            assert writer.run(source, target) == 0, writer.name
    with suppress(EOFError):
        while True:
            name, *given = requests.recv()
            requests.send(_forked(by_name[name], *given))


def _forked(writer: Writer, source: Path, target: Path, at: int, action: str, mask: int | None) -> Outcome:
    # A process that is killed leaves what it was about to send to a URL.
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as counted, tempfile.TemporaryDirectory() as scratch:
        child = os.fork()
        if child == 0:
            code = 97
            try:
                tempfile.tempdir = scratch
                os.umask(os.umask(0) if mask is None else mask)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                steps = Steps(at, action, str(target.parent))
                steps.install()
                code = writer.run(source, target)
                counted.write(json.dumps([(step.name, step.path) for step in steps.done]).encode())
                counted.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                with suppress(OSError, ValueError):
                    sys.stderr.flush()
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        for file in (said, counted):
            file.seek(0)
        steps_done = [Step(*one) for one in json.loads(counted.read() or b"[]")]
        return Outcome(os.waitstatus_to_exitcode(status), steps_done, said.read().decode(errors="replace"))


def killed_after(job: "subprocess.Popen[bytes]", count: Callable[[], int], wanted: int, pause: float, output: Path | None = None) -> bool:
    """Kill a process and its group some seconds after a count is reached. Returns whether it still ran; it may not have failed before."""
    while job.poll() is None and count() < wanted:
        time.sleep(0.01)
    time.sleep(pause)
    runs = job.poll() is None
    if runs:
        os.killpg(job.pid, signal.SIGKILL)
    else:
        assert job.returncode == 0, "" if output is None else output.read_text()[-5000:]
    job.wait()
    return runs
