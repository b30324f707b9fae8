"""The section on space by format: how much is stored in which, and how large a sample of the records is in each."""

import tempfile
from pathlib import Path

from kolumn.accounting.anatomy import PARTS
from kolumn.accounting.formats import Space
from kolumn.accounting.formats import space as space_of
from kolumn.encode.write import write
from kolumn.report import charts, html, words
from kolumn.report.gather import Findings
from kolumn.report.sample import Sample

MOST_BYTES = 1 << 20
"""Of the sample: each format encodes it, and reads it back."""


def in_formats(sample: Sample) -> list[Space]:
    """The sample in Kafka's formats, uncompressed, in batches of 16 KiB."""
    whole = sample.table()
    rows = max(1, min(whole.num_rows, whole.num_rows * MOST_BYTES // max(whole.nbytes, 1)))
    with tempfile.TemporaryDirectory(prefix="kolumn-sample-") as folder:
        path = Path(folder, "sample.log")
        # Not only the first partition's.
        write(whole.take(list(range(0, whole.num_rows, -(-whole.num_rows // rows)))), path)
        return [one for one in space_of(path) if one.format == "kafka"]


def space(found: Findings) -> str:
    """What is stored in which format, and how much each would add to a record."""
    stored = sorted(found.headers.formats.items())
    if not stored:
        return ""
    size = sum(own for _, (_, own) in stored)
    rows: list[tuple[str, int, int, str]] = [(f"v{magic}", batches, own, words.share(own, size)) for magic, (batches, own) in stored]
    drawn = [charts.bars("formats", "Stored bytes by format", [(name, own) for name, _, own, _ in rows], words.size)]
    made = html.table("Stored bytes by format, as they are", ["format", "batches", "stored bytes", "share"], rows)
    said = ""
    if found.sample.parts:
        formats = in_formats(found.sample)
        drawn.append(charts.overhead("overhead", formats, _name))
        most = words.counted(max(one.records for one in formats), "record")
        said = f"The second picture is {most} of the sample, uncompressed, in batches of 16 KiB."
        lines = [[_name(one), one.bytes, *(one.parts[part] for part in PARTS[:-1]), ", ".join(one.lost)] for one in formats]
        made += html.table("The sample in each format, by what the bytes are for", ["format", "bytes", *PARTS[:-1], "lost"], lines)
    return html.charts(drawn) + html.text(said) + made


def _name(one: Space) -> str:
    return f"v{one.magic}"
