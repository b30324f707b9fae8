"""One name has one meaning: no public name is also a module's, and states are referred to by the names that their module defines."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.source_tree import PACKAGE, packages, parsed
from kit.source_tree import modules as every_module

FOLDERS = [PACKAGE / path for path in packages()]
OWNERS = {
    "formats/layout.py": {"NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"},
    "decode/host/aborted.py": {"COMMITTED", "ABORTED", "OPEN"},
    "formats/v2.py": {"ABORT", "COMMIT"},
    "formats/table.py": {"CREATE_TIME", "LOG_APPEND_TIME"},
}
"""Names of states, and the modules that define them."""


def public(folder: Path) -> set[str]:
    """Public names that a package's `__init__.py` lists."""
    for statement in ast.parse((folder / "__init__.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return set(ast.literal_eval(statement.value))
    return set()


def modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py")} | {path.name for path in folder.iterdir() if (path / "__init__.py").is_file()}


def test_the_packages_are_seen() -> None:
    assert {"kolumn", "spark_plugin", "formats", "kernels"} <= {folder.name for folder in FOLDERS}
    assert "read_cudf" in public(PACKAGE)
    assert "export" in public(PACKAGE / "spark_plugin")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_public_name_is_a_module(folder: Path) -> None:
    """Importing a module sets the attribute of its name in its package, and replaces an attribute that was there."""
    assert public(folder) & modules(folder) == set()


def test_functions_stay_functions() -> None:
    """Functions stay functions in any order of imports: the first use of one name must not change another one."""
    program = "import kolumn; names = [n for n in kolumn.__all__ if n[0].islower()]; [getattr(kolumn, n) for n in names[::-1]]"
    check = f"{program}; print(sorted(n for n in names if not callable(getattr(kolumn, n))))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout.strip() == "[]"


TWINS = {"Inflated", "Columns", "Headers", "Fields"}
"""Classes of twin stages of both backends, and arguments of kernels, which have the kernel's name."""


def test_classes_have_one_meaning() -> None:
    found: dict[str, list[str]] = {}
    for path in every_module():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1 and name not in TWINS} == {}


NAME_A_LAYOUT = {
    "cpu_fallback/check.py",
    "cpu_fallback/encode/batches.py",
    "cpu_fallback/stream_messages.py",
    "damage/intact.py",
    "decode/device/inflate.py",
    "decode/chunk.py",
    "decode/observed.py",
    "tools/sizes.py",
    "writers/rewriting/cleaner.py",
    "broker.py",
    "writers/regroup.py",
    "writers/encoders.py",
}
"""Files outside of `formats` with a path that only one layout has. All others ask `kolumn.formats.layouts` for facts."""


def test_few_files_name_a_layout() -> None:
    others = [path for path in every_module() if path.parts[0] != "formats"]
    assert {str(path) for path in others if "LAYOUT.number" in (PACKAGE / path).read_text()} == NAME_A_LAYOUT


def bare(path: Path, names: set[str]) -> Iterator[str]:
    """Places at which a module assigns a number to one of the names, or has a pair of a number and one of the names."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
            pairs = [(node.elts[1], node.elts[0])]
        else:
            continue
        for target, value in pairs:
            name = ast.unparse(target).rpartition(".")[2].lstrip("_")
            if name in names and isinstance(value, ast.Constant) and isinstance(value.value, int):
                yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_states_go_by_the_names_of_their_owners() -> None:
    found: list[str] = []
    for path in every_module():
        found += bare(path, set().union(*(owned for owner, owned in OWNERS.items() if path != Path(owner))))
    assert found == []
