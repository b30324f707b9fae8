"""A report becomes a file."""

from pathlib import Path

from kolumn import keywords
from kolumn.commit.run import Commit
from kolumn.commit.staged_file import StagedFile
from kolumn.report.gather import Findings, gather
from kolumn.report.page import render
from kolumn.report.svg import Chart


def write_report(
    source: keywords.Source,
    target: str,
    title: str,
    *,
    format: keywords.Format = "kafka",
    replicas: keywords.Replicas = "raise",
    check_crcs: bool = True,
    topic: str | None = None,
    partition: int | None = None,
    max_batch_bytes: int = 2**31 - 1,
    max_ratio: float = 1032.0,
    on_progress: keywords.Progress | None = None,
) -> Findings:
    """Write a page about a source: one file that loads nothing. Options as `kolumn.scan`; damage is reported in the page.

    Raises `MissingError` without matplotlib, before anything is read, and `KolumnError` if the file cannot be written.
    """
    with Chart("check", "", ""):
        pass
    found = gather(
        source, format=format, replicas=replicas, check_crcs=check_crcs, topic=topic, partition=partition, max_batch_bytes=max_batch_bytes,
        max_ratio=max_ratio, on_progress=on_progress,
    )  # fmt: skip
    data = render(found, title).encode("utf-8", "backslashreplace")
    path = Path(target)
    with Commit(path.parent, replace=True) as commit, StagedFile(commit.place(path)) as file:
        file.write(data)
    return found
