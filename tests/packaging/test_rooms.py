"""Lengths of files and functions are limited, and the Makefile's help is complete."""

import ast
import re
from pathlib import Path

from kit.source_tree import PACKAGE, modules, parsed

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def test_no_file_is_long() -> None:
    assert [str(path) for path in modules() if (PACKAGE / path).read_text().count("\n") > MAX_FILE_LINES] == []


def test_no_function_is_long() -> None:
    functions = [(path, node) for path in modules() for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef)]
    assert [f"{path}: {node.name}" for path, node in functions if _lines(node) >= MAX_FUNCTION_LINES] == []


def _lines(function: ast.FunctionDef) -> int:
    """Lines of a function without its docstring, whose length depends on the number of parameters."""
    first = function.body[0]
    is_text = ast.get_docstring(function) is not None
    return (function.end_lineno or 0) - function.lineno - ((first.end_lineno or 0) - first.lineno + 1 if is_text else 0)


def test_make_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert set(re.findall(r"^([\w-]+):.*## ", text, re.MULTILINE)) == set(phony.split())
