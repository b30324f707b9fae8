"""Lengths of files and functions are limited, and the Makefile's help is complete."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.source_tree import PACKAGE, modules, parsed

ROOT = Path(__file__).resolve().parents[2]
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


MOST = 12 << 20


def test_tracked_files_are_below_12_mib() -> None:
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
    "cpu_fallback/values/words", "kernels/machine/nvptx", "kernels/machine/kernel", "formats/machine_code/deferred",
    "formats/machine_code/words",
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
