"""A progress bar on standard error."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0
"""Seconds; shorter work needs no bar."""


@contextmanager
def progress(title: str, total: int | Callable[[], int] | None) -> Iterator[Callable[[int], None]]:
    """Show a bar over ``total`` bytes while something takes longer than a second, if standard error is a terminal.

    Yields what has to be told the bytes that were read, from any thread. Without a total the bar says only that work goes on;
    a function is asked for it only where there is a bar, since finding the segments of a source takes time.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done: None
        return
    total = total() if callable(total) else total
    sizes = () if total is None else (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    # Standard output stays what it is: records go there, past any console.
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
