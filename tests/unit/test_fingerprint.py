"""Machine code is reused only if no function in it, and no constant frozen into it, has changed."""

import ast
import os
import shutil
from pathlib import Path

import pytest

import kolumn
from kolumn.cpu_fallback.machine import loops
from kolumn.formats.machine_code.cache import digest, fingerprint
from kolumn.kernels.machine import image

PACKAGE = Path(kolumn.__file__).parent
SOURCES = {"cpu": loops.SOURCES, "gpu": image.SOURCES}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "kolumn", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.parametrize("backend", SOURCES)
def test_what_changes_it(backend: str, copy: Path) -> None:
    names = SOURCES[backend]
    seen = [digest(copy, *names)]
    assert seen == [fingerprint(*names)]
    errors = copy / "core" / "errors.py"
    errors.write_text(errors.read_text().replace("TAG_COUNT = 55", "TAG_COUNT = 57"))
    seen.append(digest(copy, *names))
    (copy / "formats" / "inner_package").mkdir()
    (copy / "formats" / "inner_package" / "fields.py").write_text("LIMIT = 1\n")
    seen.append(digest(copy, *names))
    (copy / "formats" / "inner_package" / "fields.py").write_text("LIMIT = 2\n")
    seen.append(digest(copy, *names))
    (copy / "formats" / "v2.py").rename(copy / "formats" / "v2_renamed.py")
    seen.append(digest(copy, *names))
    assert len(set(seen)) == len(seen)
    (copy / "formats" / "__pycache__").mkdir()
    (copy / "formats" / "__pycache__" / "v2.pyc").write_bytes(b"")
    (copy / "api.py").write_text("")
    assert digest(copy, *names) == seen[-1]


@pytest.mark.parametrize("backend", SOURCES)
def test_nothing_compiled_comes_from_elsewhere(backend: str) -> None:
    """Compiled functions, and the constants that they use, contain no names from modules that the fingerprint leaves out."""
    inside = {name.removesuffix(".py") for name in SOURCES[backend]}
    found = 0
    for path in [file for name in inside for file in sources(PACKAGE / name)]:
        tree = ast.parse(path.read_text())
        used = frozen(tree, scalar=bool({"formats", "codecs"} & set(path.relative_to(PACKAGE).parts)))
        assert not used & imported_from_outside(tree, inside), path
        found += bool(used)
    assert found > 20


def sources(place: Path) -> list[Path]:
    """Modules of a package, and of the packages in it; links are followed."""
    return [Path(folder, name) for folder, _, names in os.walk(place, followlinks=True) for name in names if name.endswith(".py")]


def imported_from_outside(tree: ast.Module, inside: set[str]) -> set[str]:
    """Names that a module imports from the parts of Kolumn that are not ``inside``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            package, _, inner = node.module.partition(".")
            for alias in node.names:
                full = f"{inner}.{alias.name}".strip(".").replace(".", "/")
                if package == "kolumn" and not any(f"{full}/".startswith(f"{part}/") for part in inside):
                    names.add(alias.asname or alias.name)
    return names


def frozen(tree: ast.Module, scalar: bool) -> set[str]:
    """Names that compiled functions of a module use, and names in the definitions of the constants among those."""
    constants: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                constants |= dict.fromkeys(names_in(target), names_in(node.value))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and (scalar or is_compiled(node))]
    used = {name for function in functions for line in function.body for name in names_in(line)}
    while more := {inner for name in used for inner in constants.get(name, set())} - used:
        used |= more
    return used


_DECORATORS = {"compiled", "register_jitable", "intrinsic", "overload", "thread_per_item", "warp_per_item", "blocks"}


def names_in(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def is_compiled(function: ast.FunctionDef) -> bool:
    return any(names_in(node) & _DECORATORS for node in function.decorator_list)


def test_the_test_above_can_fail() -> None:
    tree = ast.parse("from kolumn.options import LIMIT\n_LIMIT = 2 * LIMIT\n@compiled\ndef loop(a: int) -> int:\n    return a + _LIMIT\n")
    assert frozen(tree, scalar=False) & imported_from_outside(tree, {"formats"}) == {"LIMIT"}
    assert not imported_from_outside(tree, {"options"})
