"""``kolumn report``: a page about a log."""

from typing import Annotated

import typer

from kolumn.cli.common import Sources, command, say, short_name, size_of
from kolumn.cli.ending import progress
from kolumn.cli.read_options import READING, OptionValue, with_read_options
from kolumn.cli.tables import note
from kolumn.core.errors import escaped


@command
@with_read_options(*READING[1:], "keys")
def report(
    sources: Sources,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page; a file of that name is replaced.")
    ] = "report.html",
    **options: OptionValue,
) -> int:
    """Write a page with pictures: what is in here, is it healthy, where does the space go (kolumn[report]).

    The page is one file that loads nothing, for a browser, a phone or a screen reader: damage, records over time, batches, codecs and
    what others would save, keys, order of timestamps, absent offsets, transactions, producers. Memory does not depend on the size
    of the source. The exit code is 1 if anything is damaged.

    Example: `kolumn report /mnt/dead-broker -o report.html`
    """
    from kolumn.tools.report.page import write_report

    with progress("reading", lambda: size_of(sources)) as advance:
        title = ", ".join(escaped(short_name(source)) for source in sources)
        found = write_report(sources, output, title, on_progress=advance, **options)
    note(f"report: {output}")
    return say(found.skipped)
