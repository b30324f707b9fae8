"""A report becomes a file."""

from pathlib import Path
from typing import Unpack

from kolumn import keywords
from kolumn.commit.run import Commit
from kolumn.commit.staged_file import StagedFile
from kolumn.report.gather import Findings, gather
from kolumn.report.page import render
from kolumn.report.svg import Chart


def write_report(source: keywords.Source, target: str, title: str, **options: Unpack[keywords.ReadOptions]) -> Findings:
    """Write a page about a source: one file that loads nothing. Options as `kolumn.scan`; damage is reported in the page.

    Raises `MissingError` without matplotlib, before anything is read, and `KolumnError` if the file cannot be written.
    """
    with Chart("check", "", ""):
        pass
    found = gather(source, **options)
    data = render(found, title).encode("utf-8", "backslashreplace")
    path = Path(target)
    with Commit(path.parent, replace=True) as commit, StagedFile(commit.place(path)) as file:
        file.write(data)
    return found
