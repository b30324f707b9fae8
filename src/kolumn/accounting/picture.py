"""The sizes as a picture: a bar for each format, divided by the purpose of the bytes."""

from io import BytesIO
from pathlib import Path

from kolumn.accounting.anatomy import PARTS
from kolumn.accounting.formats import Space
from kolumn.commit.run import Commit
from kolumn.commit.staged_file import StagedFile
from kolumn.errors import ArgumentError, MissingPackageError

KINDS = (".svg", ".png", ".pdf")


def draw(found: list[Space], path: str, source: str = "") -> None:
    """Draw the sizes into a file; ``source`` is for the title.

    The saving of a codec is not drawn as a part: a bar is as long as the decompressed entries, and a mark shows the compressed size. A
    label names the parts that a format cannot store. Raises `ArgumentError` if the file's name does not end with the suffix of a picture
    format, `MissingError` without matplotlib, and `KolumnError` if the file cannot be written.
    """
    if Path(path).suffix not in KINDS:
        raise ArgumentError(f"{path}: expected a name that ends in {', '.join(KINDS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("pictures need matplotlib: pip install 'kolumn[report]'") from error
    figure = Figure(figsize=(10, 0.6 * len(found) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    names = [one.format if one.magic is None else f"{one.format}, magic {one.magic}" for one in found]
    left = [0.0] * len(found)
    for part in PARTS[:-1]:
        widths = [one.parts[part] / 1e6 for one in found]
        axes.barh(names, widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    sizes = [one.bytes / 1e6 for one in found]
    axes.plot(sizes, names, "k|", markersize=18, markeredgewidth=2, label="with the codec")
    for number, (one, end) in enumerate(zip(found, left, strict=True)):
        # A bar is also shorter because of parts that its format cannot store.
        lost = [part for part in PARTS if part in one.lost]
        if lost:
            place = max(end, sizes[number]), number
            axes.annotate(f"{' and '.join(lost)} lost", place, (6, 0), textcoords="offset points", va="center")
    axes.margins(x=0.3)
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.set_title(f"Where the bytes of {source or 'the segments'} go, in each format", wrap=True)
    axes.set_xlabel("MB")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=5, frameon=False)
    drawn = BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.removeprefix("."))
    with Commit(Path(path).parent, replace=True) as commit, StagedFile(commit.place(Path(path))) as file:
        file.write(drawn.getbuffer())
