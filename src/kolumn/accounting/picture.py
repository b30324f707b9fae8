"""The account as a picture: a bar for each format, cut by what the bytes are for."""

from pathlib import Path

from kolumn.accounting.anatomy import PARTS
from kolumn.accounting.formats import Space
from kolumn.errors import ArgumentError, MissingError

KINDS = (".svg", ".png", ".pdf")


def draw(found: list[Space], path: str) -> None:
    """Draw an account into a file.

    What a codec saves is not drawn as a part: bars are as long as the entries are inflated, and a mark says how long with it.

    Raises
    ------
    ArgumentError
        A file name that says no kind of picture.
    MissingError
        matplotlib is not installed.
    """
    if Path(path).suffix not in KINDS:
        raise ArgumentError(f"{path}: expected a name that ends in {', '.join(KINDS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingError("pictures need matplotlib: pip install 'kolumn[report]'") from error
    figure = Figure(figsize=(10, 0.6 * len(found) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    names = [one.format if one.magic is None else f"{one.format}, magic {one.magic}" for one in found]
    left = [0] * len(found)
    for part in PARTS[:-1]:
        widths = [one.parts[part] for one in found]
        axes.barh(names, widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.plot([one.bytes for one in found], names, "k|", markersize=18, markeredgewidth=2, label="with the codec")
    axes.invert_yaxis()
    axes.set_xlabel("bytes")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=5, frameon=False)
    figure.savefig(path)
