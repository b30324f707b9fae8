"""Paths that the documents name exist, and `DESIGN.md` names every folder of the package."""

import re
from pathlib import Path

import pytest

from kit.source_tree import LINKED, PACKAGE, modules, packages

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


def test_paths_in_docstrings_exist() -> None:
    """Those with a folder: it lies in the repository, in the package, or beside the module or a folder that holds it."""
    named = [(module, name) for module in modules() for name in re.findall(r"`((?:\w+/)+\w+\.py)`", (PACKAGE / module).read_text())]
    assert len(named) > 50
    missing = [
        (str(module), name) for module, name in named if not any((PACKAGE / up / name).exists() for up in (Path("../.."), *module.parents))
    ]
    # A file of another project.
    assert missing == [("values/wire/framing.py", "schema_registry/common/serde.py")]


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
    assert len(named((ROOT / "DESIGN.md").read_text())) > 80
    text = "`a/b.py`, `c.py` and `d/`: `e.py`; `.log`, `s3://x/y`, `df.write`, `to-parquet`, `a + b`\n* `f.py` `.ci/run`"
    assert [str(path.relative_to(ROOT)) for _, path in named(text)] == ["a/b.py", "a/c.py", "d", "d/e.py", "f.py", ".ci/run"]


def test_files_and_tests_that_the_page_on_security_names_are_there() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    files = [ROOT / name for name in re.findall(r"`(tests/[a-z0-9_/]+(?:\.py)?)`", text)]
    assert len(files) > 10
    assert [str(path) for path in files if not path.exists()] == []
    code = "".join(path.read_text() for path in files if path.is_file())
    code += "".join(path.read_text() for path in ROOT.glob("tests/fuzz/*.py"))
    names = re.findall(r"`(test_[a-z0-9_]+)`", text)
    assert len(names) > 15
    assert [name for name in names if f"def {name}(" not in code] == []
    assert "docs/security.md" in README
    assert "docs/howto/spark-issue-threads.md" in README


README = (ROOT / "README.md").read_text()
HEAD = ["part", "compiled", "executed as PTX, on the CPU", "emulated API", "run on a GPU"]


def _rows() -> list[list[str]]:
    (table,) = re.findall(r"<!-- gpu -->\n(.*?)<!-- /gpu -->", README, re.S)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_the_table_of_what_is_proven_of_the_gpu_path() -> None:
    """README has it, and the pages show that one. Measurements of `make gpu-check` are committed with the machine's name."""
    assert _rows()[0] == HEAD
    page = (ROOT / "docs/howto/gpu.md").read_text()
    assert "```{include} ../../README.md\n:start-after: <!-- gpu -->\n:end-before: <!-- /gpu -->\n```" in page
    assert not re.search(r"^\| part", page, re.M)
    (given,) = re.findall(r"^ARCHITECTURES = \((.*)\)", (ROOT / "kernels/machine/image.py").read_text(), re.M)
    (kernels,) = (row for row in _rows() if row[0] == "kernels")
    assert re.findall(r"sm_(\d+)", kernels[1]) == given.split(", ")
    ran = any((ROOT / "bench/results").glob("gpu*.json"))
    assert {row[-1] for row in _rows()[2:]} == {"no"} or ran
    assert ran or "nothing has run on a GPU" in README
