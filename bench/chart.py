"""The chart of docs/explanation/speed.md, of `bench/results/cpu_vs_java.json`: `python -m bench.chart` writes docs/_static/speed.svg."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "cpu_vs_java.json"
TARGET = HERE.parent / "docs" / "_static" / "speed.svg"
# Readable on white and on black.
GREY, BLUE, SAND = "#808080", "#3987e5", "#a89c86"


def main() -> None:
    """Draw millions of records a second by codec, Kafka's Java classes from a file beside Kolumn."""
    found = json.loads(RESULTS.read_text())
    rows = [row for row in found["rows"] if row["mode"] == "arrays"]
    grey = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), GREY)
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kolumn", "font.size": 11, **grey})  # type: ignore[dict-item]
    figure, axes = plt.subplots(figsize=(7.6, 2.9))
    fastest = max(row["records"] / row["times"]["kolumn"]["best_ms"] / 1000 for row in rows)
    for k, row in enumerate(rows):
        for shift, name, color in ((-0.2, "kolumn", BLUE), (0.2, "file", SAND)):
            speed = row["records"] / row["times"][name]["best_ms"] / 1000
            axes.barh(k + shift, speed, 0.36, color=color)
            text = f"{speed:.1f} M" + (f"   {row['ratios']['file']:.1f} ×" if name == "kolumn" else "")
            axes.text(speed + fastest / 100, k + shift, text, va="center")
    axes.set_yticks(range(len(rows)), [row["codec"] for row in rows])
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_xlim(0, 1.25 * fastest)  # room for the text after the longest bar
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)
    axes.legend(
        [Rectangle((0, 0), 1, 1, color=BLUE), Rectangle((0, 0), 1, 1, color=SAND)],
        ["Kolumn: a file to Arrow columns", "Kafka's Java classes: a file to arrays"], frameon=False, loc="lower right",
    )  # fmt: skip
    axes.set_title("records a second, one core, 64 MiB of 100-byte values", loc="left", fontsize=11)
    figure.tight_layout()
    figure.savefig(TARGET, transparent=True, metadata={"Date": None, "Title": "Records a second by codec: Kolumn and Kafka's Java classes"})


if __name__ == "__main__":
    main()
