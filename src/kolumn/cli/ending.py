"""How a command ends: its exit code, and how errors, signals and an output that can't be written are handled."""

import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import wraps
from inspect import signature
from types import FrameType
from typing import Any, NoReturn

import typer

from kolumn.cli.shell_words import in_shell_words

OK, DAMAGE, USAGE, FAILED, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes: nothing wrong, damage found, wrong arguments, it could not be done, Ctrl-C. Other signals: 128 and the signal's number."""

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Turn errors into one line on standard error and the right exit code; the function's result is the exit code."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        from kolumn.cli.compiling import compiling
        from kolumn.cpu_fallback.machine.compile_ahead import announce_by

        announce_by(compiling)
        options = tuple(signature(function).parameters)
        raise typer.Exit(exit_code_of(lambda: function(*args, **kwargs) or OK, options))

    return run


def exit_code_of(work: Callable[[], int], options: Collection[str] = ()) -> int:
    """Exit code of some work: its result, or the code of its error. All that it printed has been written by then.

    Errors name parameters of Python; those among ``options`` are named as the command line has them.
    """
    from kolumn.errors import ArgumentError, CorruptBatchError, KolumnError

    try:
        return _written(work())
    except BrokenPipeError:
        # The reader of the output has closed it.
        _discard_output()
        return OK
    except KeyboardInterrupt:
        say("interrupted")
        return _written(INTERRUPTED)
    except KolumnError as error:
        say(in_shell_words(str(error), options))
        return _written(DAMAGE if isinstance(error, CorruptBatchError) else USAGE if isinstance(error, ArgumentError) else FAILED)
    except OSError as error:
        # Files are named in such errors, streams are not.
        say(f"output cannot be written: {error.strerror}" if error.filename is None else f"{error.filename}: {error.strerror}")
        return _written(FAILED)
    except MemoryError as error:
        say(f"out of memory: {error}" if str(error) else "out of memory")
        return _written(FAILED)


def say(text: str) -> None:
    """A line on standard error, as far as that takes one."""
    with suppress(OSError, ValueError):
        typer.echo(f"kolumn: {text}", err=True)


def _written(code: int) -> int:
    """The exit code when the output has been written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        say(f"output cannot be written: {error.strerror}")
        _discard_output()
        return FAILED
    return code


def _discard_output() -> None:
    """Keep Python from writing what is left at exit, and from complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_process() -> None:
    """Streams that take any name and report what they can't write, and signals that let a command clean up before it ends.

    A name that is not UTF-8 is shown with escapes, which JSON knows too.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Or the next file that is opened becomes standard output. Writing to this one is an error, as it should be.
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    with suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    for number in _ENDING_SIGNALS:
        # What was told to ignore a signal, as by nohup, goes on ignoring it.
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Leave through every context, which removes what is half written; a second signal ends at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
