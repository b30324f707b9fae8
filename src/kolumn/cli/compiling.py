"""Progress bar of the command line while machine code is being compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
