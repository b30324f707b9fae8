"""A progress bar on standard error."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0
"""Seconds after which a bar is shown."""


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
