"""How a command ends: its exit code, and the handling of errors, signals and an output that cannot be written."""

import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import wraps
from inspect import signature
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from kolumn.cli.shell_words import in_shell_words
from kolumn.cli.tables import NAMES

if TYPE_CHECKING:
    from kolumn.errors import KolumnError

OK, DAMAGE, USAGE, FAILED, LIMIT, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""Exit codes: nothing wrong, damage found, wrong arguments, failed, no damage but batches over a limit, Ctrl-C. For other signals: 128 plus
the signal's number."""

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Base of Typer's errors about arguments, which has no public name. Typer itself prints them."""

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_owns_process = False


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Turn errors into one line on standard error and the right exit code; the function's result is the exit code."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        from kolumn.cli.compiling import compiling
        from kolumn.cpu_fallback.machine.compile_ahead import announce_by

        announce_by(compiling)
        if _owns_process:
            _keep_pandas_out()
        options = tuple(signature(function).parameters)
        raise Ended(exit_code_of(lambda: function(*args, **kwargs) or OK, options))

    return run


class Ended(SystemExit):
    """A command has run; `code` is its exit code. Typer's own exits, as after help, are other exceptions."""

    code: int


def exit_code_of_typer(code: Any) -> int:
    """Exit code of an action of Typer itself: help, completion, wrong arguments."""
    if code != 1:
        return code if isinstance(code, int) else OK if code is None else FAILED
    # Its 1 has no meaning of its own. Rich ends with it where the reader of a pipe has closed it, and writes to /dev/null from then on.
    return OK if os.path.samestat(os.fstat(1), os.stat(os.devnull)) else INTERRUPTED


def exit_code_of(work: Callable[[], int], options: Collection[str] = ()) -> int:
    """Exit code of some work: its result, or the code of its error. All of its output has been written when this returns.

    Errors contain names of Python parameters; those among ``options`` are replaced by the names on the command line.
    """
    from kolumn.errors import KolumnError, shown

    try:
        return _written(work())
    except BrokenPipeError:
        # The process that reads the output has closed it.
        _discard_output()
        return OK
    except KeyboardInterrupt:
        say("interrupted")
        return _written(INTERRUPTED)
    except KolumnError as error:
        say(in_shell_words(str(error), options))
        return _written(_code_of(error))
    except OSError as error:
        # Such errors contain names of files, but not of streams.
        say(shown(f"{error.filename}: {error.strerror}") if error.filename is not None else _unwritten(error))
        return _written(FAILED, is_said=error.filename is None)
    except MemoryError as error:
        say(shown(f"out of memory: {error}") if str(error) else "out of memory")
        return _written(FAILED)
    except (SystemExit, typer.Exit, typer.Abort, USAGE_ERROR):
        raise
    except BaseException as error:
        # Polars' own failures are no `Exception`. Python's exit code for any is 1, which would say that the log is damaged.
        if os.environ.get("KOLUMN_DEBUG"):
            raise
        say(shown(f"internal error: {type(error).__name__}: {error}. KOLUMN_DEBUG=1 prints where it was raised; please report that"))
        return _written(FAILED)


def _code_of(error: "KolumnError") -> int:
    from kolumn.errors import ArgumentError, CorruptBatchError, LimitError

    for kind, code in ((LimitError, LIMIT), (CorruptBatchError, DAMAGE), (ArgumentError, USAGE)):
        if isinstance(error, kind):
            return code
    return FAILED


def say(text: str) -> None:
    """Print a line on standard error; if that cannot be written, it is dropped."""
    with suppress(OSError, ValueError):
        typer.echo(f"kolumn: {text}", err=True)


def _unwritten(error: OSError) -> str:
    return f"output cannot be written: {error.strerror}"


def _written(code: int, is_said: bool = False) -> int:
    """The exit code after the output has been written. If it cannot be, that is said, unless it was."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        if not is_said:
            say(_unwritten(error))
        _discard_output()
        return FAILED
    return code


def _discard_output() -> None:
    """Prevent Python from writing the rest of the output at exit, and from reporting an error about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_process() -> None:
    """Set up streams that accept any name and report write errors, and signals that let a command clean up before it ends.

    A name that is not UTF-8 is shown with escapes; on standard output with those that JSON knows too.
    """
    global _owns_process
    _owns_process = True
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next file that is opened would become standard output. Writing to this descriptor is an error, as intended.
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    with suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with suppress(AttributeError):
        sys.stderr.reconfigure(errors=NAMES)  # type: ignore[union-attr]
    for number in _ENDING_SIGNALS:
        # If the process was started with a signal ignored, as by nohup, the signal stays ignored.
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)


def _keep_pandas_out() -> None:
    """Let PyArrow find that pandas is not installed: it looks once, at the first value that it converts, and importing pandas takes longer
    than most commands. No command needs it, and other packages still find it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Exit through every context manager, so that incomplete files are removed; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
