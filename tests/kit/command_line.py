"""`kolumn` on the command line, as processes that are forked from one that has imported everything.

A new Python imports for most of a second what a command needs for some milliseconds. What depends on how a process starts (its
environment, what it imports, a closed stream) needs one of its own.
"""

import atexit
import gc
import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"


def run(*args: object, cwd: Path | None = None, stdout: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command, and return its exit code and what it printed; with ``stdout`` it prints into this file instead."""
    with tempfile.TemporaryDirectory() as folder:
        out, err, given = Path(folder, "out"), Path(folder, "err"), [*map(str, args)]
        _commands().send((given, cwd or Path.cwd(), stdout or out, err, dict(os.environ)))
        code = _commands().recv()
        return subprocess.CompletedProcess(["kolumn", *given], code, "" if stdout else out.read_text(), err.read_text())


@cache
def _commands() -> Connection:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=serve, args=(there,), daemon=True).start()
    there.close()
    return here


def serve(commands: Connection) -> None:
    """Fork a child for each command, and answer with its exit code."""
    import kolumn
    import kolumn.cli.ending
    import kolumn.tools.statistics

    importlib.import_module("kit.object_store")  # commands know objects:// then
    # What is imported and loaded on first use; one thread, for a process with several cannot be forked.
    kolumn.read(CORPUS / "upgraded" / "upgraded-gzip-0", threads=1)
    kolumn.verify(CORPUS / "upgraded" / "upgraded-gzip-0", threads=1)
    for arguments in (["columns"], ["convert"]):
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
            kolumn.cli.app(arguments)
    gc.freeze()
    with suppress(EOFError):
        while True:
            command = commands.recv()
            child = os.fork()
            if not child:
                _be_command(*command)
            commands.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _be_command(arguments: list[str], folder: Path, out: Path, err: Path, environment: dict[str, str]) -> NoReturn:
    """End as a process ends that has run nothing else, but for taking apart what Python has loaded."""
    from kolumn.cli import main

    code: Any = 97
    try:
        for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY | os.O_CREAT), (2, err, os.O_WRONLY | os.O_CREAT)):
            os.dup2(os.open(name, flags, 0o600), number)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["kolumn", *arguments]
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
        except OSError:
            # As Python does: it says so, and the exit code is another one.
            traceback.print_exc()
            code = 120
        os._exit(code)
