"""Charts as SVG for a page: drawn by matplotlib, coloured by the page, with a title and a text for screen readers."""

import re
import warnings
from html import escape
from io import StringIO
from types import TracebackType
from typing import Any, TypeAlias

from kolumn.errors import MissingPackageError

# matplotlib knows no variables of CSS: each of these colours stands for one, and is drawn nowhere else.
INK, MUTED, FIRST, SECOND, THIRD, GOOD, BAD = (f"#0102{number:02x}" for number in range(7))
_VARIABLES = {INK: "ink", MUTED: "muted", FIRST: "first", SECOND: "second", THIRD: "third", GOOD: "good", BAD: "bad"}
_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "kolumn", "font.size": 10, "font.family": "sans-serif", "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK,
    "ytick.labelcolor": INK, "grid.color": MUTED, "grid.alpha": 0.25, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip
WIDTH, HEIGHT = 5.2, 2.5
"""Inches: on a phone a chart is as wide as the screen, and its text is about as large as it is drawn."""


_Failed: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Chart:
    """One chart. Draw into ``axes`` within ``with``; then `svg` is the text.

    ``name`` is the prefix of the ids in the SVG, which have to be unique in a page; ``title`` and ``description`` are for screen readers;
    ``height`` is in inches.
    """

    def __init__(self, name: str, title: str, description: str, height: float = HEIGHT) -> None:
        self.name, self.title, self.description = name, title, description
        self._height = height
        self.svg = ""

    def __enter__(self) -> Any:
        try:
            import matplotlib as mpl
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingPackageError("reports need matplotlib: pip install 'kolumn[report]'") from error
        self._context = mpl.rc_context(_STYLE)
        self._context.__enter__()
        self._figure = Figure(figsize=(WIDTH, self._height), layout="constrained")
        return self._figure.add_subplot()

    def __exit__(self, *failed: *_Failed) -> None:
        try:
            if failed[0] is None:
                self.svg = self._finished()
        finally:
            self._context.__exit__(*failed)

    def _finished(self) -> str:
        drawn = StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Type", "Format"))
        with warnings.catch_warnings():
            # Text stays text: the browser's fonts draw it, not matplotlib's.
            warnings.filterwarnings("ignore", "Glyph .* missing")
            self._figure.savefig(drawn, format="svg", transparent=True, metadata=metadata)
        text = drawn.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        for colour, variable in _VARIABLES.items():
            text = text.replace(colour, f"var(--{variable})")
        # Fonts of the page; sizes stay.
        text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
        text = re.sub(r'\bid="([^"]+)"', rf'id="{self.name}-\1"', text)
        text = re.sub(r'(xlink:href="|url\()#', rf"\1#{self.name}-", text)
        box = re.search(r'viewBox="[^"]+"', text)
        said = f'role="img" aria-labelledby="{self.name}-t {self.name}-d"'
        opening = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" {box[0] if box else ""} {said}>'
        labels = f'<title id="{self.name}-t">{escape(self.title)}</title><desc id="{self.name}-d">{escape(self.description)}</desc>'
        return opening + labels + text[text.index(">") + 1 :].strip()
