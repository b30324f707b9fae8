"""Paths that the documents name exist, and `DESIGN.md` names every folder of the package."""

import re
from pathlib import Path

import pytest

from kit.source_tree import LINKED, packages

ROOT = Path(__file__).resolve().parents[2]
# Links of the other pages of `docs/` are checked by Sphinx.
DOCUMENTS = ["DESIGN.md", "CONTRIBUTING.md", "tests/README.md", "docs/security.md"]
_PATH = re.compile(r"\.?[\w-]+(/[\w.-]+)*(/|\.(py|md|sh|toml|json))?")


def named(text: str) -> list[tuple[str, Path]]:
    """Paths in backticks, and the files that they mean.

    A bare file name lies in the folder of the last path before it in the same row of a table, item of a list or paragraph.
    """
    found = []
    for block in re.split(r"\n(?=[|*#\n]|\d\. )", text):
        folder = ROOT
        for name in re.findall(r"`([^`\n]+)`", block):
            if not _PATH.fullmatch(name) or not ("/" in name or name.endswith((".py", ".md"))):
                continue
            path = ROOT / name if "/" in name or (ROOT / name).is_file() else folder / name
            found.append((name, path))
            folder = path.parent if path.suffix else path
    return found


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    assert [name for name, path in named((ROOT / document).read_text()) if not path.exists()] == []


def test_links_of_the_readme_exist() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text())
    here = [link.partition("#")[0] for link in links if "://" not in link]
    assert len(here) > 30
    assert [link for link in here if not (ROOT / link).exists()] == []


def test_every_folder_is_named() -> None:
    folders = {"src/kolumn/"}
    for package in packages()[1:]:
        folders.add(f"{package}/" if package.parts[0] in LINKED else f"src/kolumn/{package}/")
    assert folders - {name for name, _ in named((ROOT / "DESIGN.md").read_text())} == set()


def test_paths_are_found() -> None:
    """Otherwise the tests above would pass on a document in which they find no path."""
    assert len(named((ROOT / "DESIGN.md").read_text())) > 150
    text = "`a/b.py`, `c.py` and `d/`: `e.py`; `.log`, `s3://x/y`, `df.write`, `to-parquet`, `a + b`\n* `f.py` `.ci/run`"
    assert [str(path.relative_to(ROOT)) for _, path in named(text)] == ["a/b.py", "a/c.py", "d", "d/e.py", "f.py", ".ci/run"]
