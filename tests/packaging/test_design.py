"""Paths that the documents name exist, `DESIGN.md` names every folder of the package, and files, functions and `Any` have limits."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.source_tree import LINKED, PACKAGE, modules, packages, parsed

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
GPU = (ROOT / "docs/howto/gpu.md").read_text()
HEAD = ["part", "compiled", "executed as PTX, on the CPU", "emulated API", "run on a GPU"]


def _rows() -> list[list[str]]:
    (table,) = re.findall(r"<!-- gpu -->\n(.*?)<!-- /gpu -->", GPU, re.S)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_the_table_of_what_is_proven_of_the_gpu_path() -> None:
    """Measurements of `make gpu-check` are committed with the machine's name."""
    assert _rows()[0] == HEAD
    (given,) = re.findall(r"^ARCHITECTURES = \((.*)\)", (ROOT / "kernels/machine/image.py").read_text(), re.M)
    (kernels,) = (row for row in _rows() if row[0] == "kernels")
    assert re.findall(r"sm_(\d+)", kernels[1]) == given.split(", ")
    ran = any((ROOT / "bench/results").glob("gpu*.json"))
    assert {row[-1] for row in _rows()[2:]} == {"no"} or ran
    assert ran or "nothing has run on a GPU" in GPU


# Sizes, types, and the help of the Makefile.


MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60


def test_no_file_and_no_function_is_long() -> None:
    assert [str(path) for path in modules() if (PACKAGE / path).read_text().count("\n") > MAX_FILE_LINES] == []
    functions = [(path, node) for path in modules() for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef)]
    docs = [(node.body[0].end_lineno or 0) - node.body[0].lineno + 1 if ast.get_docstring(node) else 0 for _, node in functions]
    # Without docstrings, whose lengths depend on the number of parameters.
    long = [one for one, doc in zip(functions, docs, strict=True) if (one[1].end_lineno or 0) - one[1].lineno - doc >= MAX_FUNCTION_LINES]
    assert [f"{path}: {node.name}" for path, node in long] == []


def test_make_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert set(re.findall(r"^([\w-]+):.*## ", text, re.MULTILINE)) == set(phony.split())


MOST = 14 << 20


def test_tracked_files_are_below_14_mib() -> None:
    """The tree stays small enough to be carried to a machine with a GPU, together with a bundle of packages."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no checkout")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    # Links count as what they are, not as what they lead to; a file may be removed, and not yet for git.
    sizes = {name: path.lstat().st_size for name in names if name and ((path := ROOT / name).is_symlink() or path.exists())}
    assert sum(sizes.values()) < MOST, sorted(sizes, key=lambda name: -sizes[name])[:10]


MOST_ANY = 150
"""Parameters, attributes and results have types; `Any` is only for compiler intrinsics and for objects of packages without types."""
INTRINSICS = {Path(f"{name}.py") for name in (
    "cpu_fallback/encode/key_map", "cpu_fallback/machine/address", "cpu_fallback/machine/crc", "cpu_fallback/machine/emit",
    "cpu_fallback/values/words", "kernels/machine/nvptx", "kernels/machine/kernel", "core/deferred",
    "formats/words",
)}  # fmt: skip
"""Modules whose functions emit LLVM IR: builders, contexts and signatures have no types."""


def annotations(source: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Names of parameters, of attributes of classes and of functions, with the types that these have or return."""
    for node in ast.walk(source):
        if isinstance(node, ast.arg):
            yield node.arg, node.annotation
        elif isinstance(node, ast.FunctionDef):
            yield f"{node.name}()", node.returns
        elif isinstance(node, ast.ClassDef):
            yield from ((ast.unparse(one.target), one.annotation) for one in node.body if isinstance(one, ast.AnnAssign))


def any_in(source: ast.Module) -> list[str]:
    return [name for name, kind in annotations(source) if kind is not None and ast.unparse(kind) == "Any"]


def test_few_parameters_attributes_and_results_are_any() -> None:
    found = [f"{module}: {name}" for module in modules() if module not in INTRINSICS for name in any_in(parsed(module))]
    assert len(found) < MOST_ANY, found


def test_any_is_seen() -> None:
    source = "class A:\n    a: Any\n    b: int\n    def f(self, c: Any, *d: int, e=1) -> Any: ..."
    assert sorted(any_in(ast.parse(source))) == ["a", "c", "f()"]
