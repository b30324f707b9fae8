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


MOST_ANY = 100
"""Parameters, attributes and results have types; `Any` is only for compiler intrinsics and for objects of packages without types."""
INTRINSICS = {Path(f"{name}.py") for name in (
    "cpu_fallback/encode/key_map", "cpu_fallback/machine/address", "cpu_fallback/machine/crc", "cpu_fallback/machine/emit",
    "cpu_fallback/values/words", "kernels/machine/nvptx", "kernels/machine/kernel", "formats/machine_code/deferred",
    "formats/machine_code/words",
)}  # fmt: skip
"""Modules whose functions emit LLVM IR: builders, contexts and signatures have no types."""


def parameters(source: ast.Module) -> Iterator[tuple[str, str]]:
    """Annotations of all parameters except ``self`` and ``cls``, and their positions."""
    for function in ast.walk(source):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            given = function.args
            for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if one is not None and one.arg not in ("self", "cls"):
                    yield f"{function.name}({one.arg})", ast.unparse(one.annotation) if one.annotation else ""


def test_few_parameters_attributes_and_results_are_any() -> None:
    known = [(module, *parameter) for module in modules() if module not in INTRINSICS for parameter in parameters(parsed(module))]
    found = [f"{module}: {name}" for module, name, annotation in known if annotation == "Any"]
    assert len(found) < MOST_ANY, found
    found = [f"{module}: {where}" for module in modules() if module not in INTRINSICS for where in attributes_and_results(parsed(module))]
    assert len(found) < MOST_ANY, found


def attributes_and_results(source: ast.Module) -> Iterator[str]:
    """Attributes of classes that are `Any`, and functions that return it, private functions included."""
    for node in ast.walk(source):
        if isinstance(node, ast.ClassDef):
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            yield from (f"{node.name}.{ast.unparse(one.target)}" for one in fields if ast.unparse(one.annotation) == "Any")
        elif isinstance(node, ast.FunctionDef) and node.returns is not None and ast.unparse(node.returns) == "Any":
            yield f"{node.name}()"


def test_any_is_seen() -> None:
    assert list(attributes_and_results(ast.parse("class A:\n    a: Any\n    b: int\n    def f(self) -> Any: ..."))) == ["A.a", "f()"]
    assert dict(parameters(ast.parse("def f(self, a: Any, *b: int, c=1): ..."))) == {"f(a)": "Any", "f(b)": "int", "f(c)": ""}
