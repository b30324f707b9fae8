"""How a command runs and ends: bars on standard error, its exit code, errors, signals, and an output that cannot be written.

Messages of the library are translated to the options of the command line: ``errors='skip'`` becomes ``--errors skip``.
"""

import ast
import codecs
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from inspect import signature
from io import TextIOBase
from types import FrameType
from typing import Any, NoReturn

import typer

from kolumn.core.errors import A_FRAME_EACH, ArgumentError, CorruptBatchError, KolumnError, LimitError, escaped, shown

PATIENCE_S = 1.0  # seconds after which a bar is shown
_NAMES = "kolumn-names"  # error handler of streams on which names of files are printed


def _for_stream(error: UnicodeError) -> tuple[str, int]:
    """What cannot be written to a stream: bytes that are not UTF-8, surrogates in Python's names of files."""
    assert isinstance(error, UnicodeEncodeError)
    return escaped(error.object[error.start : error.end]), error.end


codecs.register_error(_NAMES, _for_stream)


@contextmanager
def progress(title: str, total: int | Callable[[], int] | None) -> Iterator[Callable[[int], None]]:
    """Show a bar over ``total`` bytes if the work takes longer than a second and standard error is a terminal.

    Yields a function to be called with the number of bytes that were read, from any thread. Without a total only those are shown. If
    ``total`` is a function, it is called only if there is a bar, since finding the segments of a source takes time.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done: None
        return
    total = total() if callable(total) else total
    sizes = (DownloadColumn(), TransferSpeedColumn(), *(() if total is None else (TimeRemainingColumn(),)))
    # Standard output is not redirected: records are written to it directly.
    bar = Progress(TextColumn("{task.description}"), BarColumn(), *sizes, console=console, transient=True, redirect_stdout=False)
    task = bar.add_task(title, total=total)
    timer = threading.Timer(PATIENCE_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done: bar.advance(task, done)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


_IN_THE_LIBRARY = {"to": "format"}  # options that have another name in the library
SHORT_NAMES = {"start_timestamp": "--since", "end_timestamp": "--until"}  # of options that have two names here

_VALUE = r"""'[^']*'|"[^"]*"|-?[\w.]+"""
# Names in paths, topic=orders/partition=3, are not options.
_BEFORE, _AFTER = r"(?<![\w/.-])", r"(?![\w/=])"
_QUOTES = "'\""
_UNWRITTEN = "output cannot be written"


def quoted(name: str) -> str:
    """A name as a word of a shell. One that could move a terminal's cursor is written as bash, zsh and ksh take it: ``$'a\\x1b'``."""
    if name.isprintable():
        return shlex.quote(name)
    data = os.fsencode(name)
    return "$'" + "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}" for byte in data) + "'"


def in_shell_words(text: str, parameters: Iterable[str]) -> str:
    parameters = list(parameters)
    text = text.replace(A_FRAME_EACH, "`kolumn cat`, `sql` or `to-parquet`, which type each topic by itself")
    if "key_file" in parameters:
        text = re.sub(r"private_keys=\{'([^']*)': path\}", r"--key-file \1=path", text)
    for parameter in parameters:
        name, option = _IN_THE_LIBRARY.get(parameter, parameter), _as_typed(parameter)
        text = re.sub(rf"{_BEFORE}{name}=({_VALUE}){_AFTER}", partial(_given, option), text)
        if "_" in name:
            text = re.sub(rf"{_BEFORE}{name}{_AFTER}", option, text)
    return text


def _as_typed(parameter: str) -> str:
    """The option of a parameter, which may have two names: the long one if it was typed."""
    long = f"--{parameter.replace('_', '-')}"
    is_typed = any(word.partition("=")[0] == long for word in sys.argv)
    return long if is_typed else SHORT_NAMES.get(parameter, long)


def _given(option: str, match: re.Match[str]) -> str:
    value = match[1]
    if value == "True":
        return option
    return f"{option} {shlex.quote(ast.literal_eval(value)) if value[0] in _QUOTES else value}"


@contextmanager
def compiling(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress bar on standard error, if that is a terminal: number of compiled loops, and the time so far."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    parts = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    if console.is_terminal:
        console.print(f"kolumn: {title}", highlight=False, markup=False, soft_wrap=True)
    with Progress(*parts, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("compiling", total=total or None)
        yield lambda done: bar.advance(task, done)


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
    # Its 1 has no meaning of its own. Rich and Click end with it where the reader of a pipe has closed it. From then on Rich writes to
    # /dev/null, and Click wraps the stream.
    if not isinstance(sys.stdout, TextIOBase):
        _discard_output()
    return OK if os.path.samestat(os.fstat(1), os.stat(os.devnull)) else INTERRUPTED


def exit_code_of(work: Callable[[], int], options: Collection[str] = ()) -> int:
    """Exit code of some work: its result, or the code of its error. All of its output has been written when this returns. Errors contain
    names of Python parameters; those among ``options`` are replaced by the names on the command line."""
    try:
        with _logging_for(options):
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
        codes = ((LimitError, LIMIT), (CorruptBatchError, DAMAGE), (ArgumentError, USAGE))
        return _written(next((code for type, code in codes if isinstance(error, type)), FAILED))
    except OSError as error:
        # Such errors contain names of files, but not of streams.
        say(shown(f"{error.filename}: {error.strerror}") if error.filename is not None else f"{_UNWRITTEN}: {error.strerror}")
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


@contextmanager
def _logging_for(options: Collection[str]) -> Iterator[None]:
    """Print what the library logs as it would be said here, unless the program has handlers of its own."""
    import logging

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with suppress(OSError, ValueError):
                typer.echo(in_shell_words(record.getMessage(), options), err=True)

    before, logging.lastResort = logging.lastResort, Said(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = before


def say(text: str) -> None:
    """Print a line on standard error; if that cannot be written, it is dropped."""
    with suppress(OSError, ValueError):
        typer.echo(f"kolumn: {text}", err=True)


def _written(code: int, is_said: bool = False) -> int:
    """The exit code after the output has been written. If it cannot be, that is said, unless it was."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        if not is_said:
            say(f"{_UNWRITTEN}: {error.strerror}")
        _discard_output()
        return FAILED
    return code


def _discard_output() -> None:
    """Prevent Python from writing the rest of the output at exit, and from reporting an error about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_process() -> None:
    """Set up streams that accept any name and report write errors, and signals that let a command clean up before it ends. A name that is
    not UTF-8 is shown with escapes; on standard output with those that JSON knows too."""
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
        sys.stderr.reconfigure(errors=_NAMES)  # type: ignore[union-attr]
    for number in _ENDING_SIGNALS:
        # If the process was started with a signal ignored, as by nohup, the signal stays ignored.
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)


def _keep_pandas_out() -> None:
    """Let PyArrow find that pandas is not installed: it looks once, at the first value that it converts, and importing pandas takes longer
    than most commands. No command needs it, and other packages still find it."""
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
