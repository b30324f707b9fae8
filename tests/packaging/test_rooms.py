"""Lengths of files and functions are limited, and the Makefile's help is complete."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("src/kolumn", "kernels", "cpu_fallback", "spark_plugin") for path in (ROOT / folder).rglob("*.py"))
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_or_function_is_long(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    assert [node.name for node in functions if _lines(node) >= MAX_FUNCTION_LINES] == []


def _lines(function: ast.FunctionDef) -> int:
    """Lines of a function without its docstring, whose length depends on the number of parameters."""
    first = function.body[0]
    is_text = ast.get_docstring(function) is not None
    return (function.end_lineno or 0) - function.lineno - ((first.end_lineno or 0) - first.lineno + 1 if is_text else 0)


def test_make_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert set(re.findall(r"^([\w-]+):.*## ", text, re.MULTILINE)) == set(phony.split())
