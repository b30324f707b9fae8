"""What the commands share: arguments, exit codes, output."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import Annotated, Any

import typer

OK, DAMAGE, USAGE, FAILED = 0, 1, 2, 3
"""Exit codes: nothing wrong, damage found, wrong arguments, the source can't be read."""

Sources = Annotated[
    list[str], typer.Argument(metavar="SOURCE...", help="Segment files, topic-partition directories, log directories, or globs of those.")
]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output, one object a line.")]
Topic = Annotated[str | None, typer.Option(help="Topic, in place of what the directory's name says.")]
Partition = Annotated[int | None, typer.Option(help="Partition, in place of what the directory's name says.")]
CheckCrcs = Annotated[bool, typer.Option("--check-crcs/--no-check-crcs", help="Compare checksums before a batch is looked into.")]
Format = Annotated[str, typer.Option(help="'kafka', or a draft: 'enriched', 'kip98-draft', 'v3-compact', 'kip87'.")]
Errors = Annotated[str, typer.Option(help="'raise' stops at the first damage, 'skip' goes on behind it.")]
Columns = Annotated[str | None, typer.Option(help="Record columns, comma-separated; `kolumn columns` lists them.")]
StartOffset = Annotated[int | None, typer.Option(help="First offset.")]
EndOffset = Annotated[int | None, typer.Option(help="Offset to stop before.")]
StartTimestamp = Annotated[str | None, typer.Option(help="First timestamp: ms since 1970, or ISO 8601 (UTC unless it says otherwise).")]
EndTimestamp = Annotated[str | None, typer.Option(help="Timestamp to stop before, likewise.")]
IsolationLevel = Annotated[str, typer.Option(help="'read_committed' leaves out aborted transactions, and all from the first open one on.")]
IncludeHeaders = Annotated[bool, typer.Option("--include-headers", help="Record headers too.")]
IncludeControl = Annotated[bool, typer.Option("--include-control", help="Records of control batches too.")]


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Turn errors into one line on standard error and the right exit code; the function's result is the exit code."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        from kolumn.errors import ArgumentError, CorruptBatchError, KolumnError

        try:
            code = function(*args, **kwargs) or OK
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read the output has enough; keep Python from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = OK
        except KolumnError as error:
            typer.echo(f"kolumn: {error}", err=True)
            code = DAMAGE if isinstance(error, CorruptBatchError) else USAGE if isinstance(error, ArgumentError) else FAILED
        raise typer.Exit(code)

    return run


def moment(text: str | None) -> int | datetime | None:
    """Milliseconds or ISO 8601."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither ms since 1970 nor ISO 8601") from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def print_json(value: Any) -> None:
    """One JSON object on a line of its own."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_table(title: str, names: list[str], rows: list[list[Any]]) -> None:
    """A table for people; plain text where standard output is no terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=False) if sys.stdout.isatty() else Console(width=240, no_color=True)
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in names:
        numeric = all(row[names.index(name)] is None or isinstance(row[names.index(name)], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric and rows else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    console.print(table)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress bar over bytes on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    parts = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*parts, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)
