"""The package as files: its modules, the rooms that they are in, and what each of them imports."""

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "kolumn"
LINKED = {"kernels", "cpu_fallback", "spark_plugin"}
"""Folders of the repository that `src/kolumn` links to."""
STAGED = {"kernels", "cpu_fallback"}
"""Those of the backends: a module that lies directly in one is a stage."""


def modules() -> list[Path]:
    """Every module, by its path in the package."""
    found = (Path(folder, name) for folder, _, names in os.walk(PACKAGE, followlinks=True) for name in names if name.endswith(".py"))
    return sorted(path.relative_to(PACKAGE) for path in found)


def packages() -> list[Path]:
    """Every package, by its path in the package; the first is ``.``, `kolumn` itself."""
    return sorted({path.parent for path in modules()})


def room(module: Path) -> str:
    """The folder of a module, with dots. A module that lies directly in `kolumn`, and a stage of a backend, is a room of its own."""
    parts = module.with_suffix("").parts
    if parts[-1] == "__init__":
        return ".".join(parts[:-1]) or "kolumn"
    alone = len(parts) == 1 or (len(parts) == 2 and parts[0] in STAGED)
    return ".".join(parts if alone else parts[:-1])


@cache
def parsed(module: Path) -> ast.Module:
    """Syntax of a module, which many rules ask for: it is parsed once, and nobody may change it."""
    return ast.parse((PACKAGE / module).read_text())


@cache
def imports(module: Path, *, top_only: bool = False) -> tuple[str, ...]:
    """Full dotted names of what a module imports; with ``top_only`` only what importing it runs."""
    return tuple(_imported(module, top_only))


def _imported(module: Path, top_only: bool) -> Iterator[str]:
    tree = parsed(module)
    nodes = [node for statement in tree.body for node in _executed(statement)] if top_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import in line {node.lineno}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _executed(statement: ast.stmt) -> Iterator[ast.AST]:
    """Nodes that run on import: not the bodies of functions, nor what only type checkers see."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
        return
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _executed(child)


def arrows() -> dict[Path, set[Path]]:
    """Which modules of the package each module imports: at import, in functions, or for type checkers."""
    by_name = {".".join(("kolumn", *path.with_suffix("").parts)).removesuffix(".__init__"): path for path in modules()}
    found: dict[Path, set[Path]] = {}
    for module in by_name.values():
        found[module] = set()
        for name in imports(module):
            while name and name not in by_name:
                name = name.rpartition(".")[0]
            if name and by_name[name] != module:
                found[module].add(by_name[name])
    return found
