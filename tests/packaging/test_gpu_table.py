"""The table of what is proven of the GPU path, and how: README has it, the pages show that one, and it says what is so."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
HEAD = ["part", "compiled", "executed as PTX, on the CPU", "emulated API", "run on a GPU"]


def _rows() -> list[list[str]]:
    (table,) = re.findall(r"<!-- gpu -->\n(.*?)<!-- /gpu -->", README, re.S)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_it_is_in_one_place() -> None:
    assert _rows()[0] == HEAD
    page = (ROOT / "docs/howto/gpu.md").read_text()
    assert "```{include} ../../README.md\n:start-after: <!-- gpu -->\n:end-before: <!-- /gpu -->\n```" in page
    assert not re.search(r"^\| part", page, re.M)


def test_it_says_what_is_compiled() -> None:
    (given,) = re.findall(r"^ARCHITECTURES = \((.*)\)", (ROOT / "kernels/machine/image.py").read_text(), re.M)
    (kernels,) = (row for row in _rows() if row[0] == "kernels")
    assert re.findall(r"sm_(\d+)", kernels[1]) == given.split(", ")


def test_it_says_what_has_run() -> None:
    """Measurements of `make gpu-check` are committed with the machine's name."""
    ran = any((ROOT / "bench/results").glob("gpu*.json"))
    assert {row[-1] for row in _rows()[2:]} == {"no"} or ran
    assert ran or "nothing has run on a GPU" in README
