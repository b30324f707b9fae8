"""Parameters, attributes and results have types; `Any` is only for compiler intrinsics and for objects of packages without types."""

import ast
from collections.abc import Iterator
from pathlib import Path

from kit.source_tree import modules, parsed

MOST = 100
INTRINSICS = {
    Path("cpu_fallback/encode/key_map.py"),
    Path("cpu_fallback/machine/address.py"),
    Path("cpu_fallback/machine/crc.py"),
    Path("cpu_fallback/machine/emit.py"),
    Path("cpu_fallback/machine/fold.py"),
    Path("cpu_fallback/values/json_words.py"),
    Path("kernels/machine/nvptx.py"),
    Path("kernels/machine/threads.py"),
    Path("machine_code/deferred.py"),
    Path("machine_code/words.py"),
}
"""Modules whose functions emit LLVM IR: builders, contexts and signatures have no types."""


def parameters(source: ast.Module) -> Iterator[tuple[str, str]]:
    """Annotations of all parameters except ``self`` and ``cls``, and their positions."""
    for function in ast.walk(source):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            given = function.args
            for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if one is not None and one.arg not in ("self", "cls"):
                    yield f"{function.name}({one.arg})", ast.unparse(one.annotation) if one.annotation else ""


def test_few_parameters_are_any() -> None:
    found = [
        f"{module}: {where}"
        for module in modules()
        if module not in INTRINSICS
        for where, annotation in parameters(parsed(module))
        if annotation == "Any"
    ]
    assert len(found) < MOST, found


def attributes_and_results(source: ast.Module) -> Iterator[str]:
    """Attributes of classes that are `Any`, and functions that return it, private functions included."""
    for node in ast.walk(source):
        if isinstance(node, ast.ClassDef):
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            yield from (f"{node.name}.{ast.unparse(one.target)}" for one in fields if ast.unparse(one.annotation) == "Any")
        elif isinstance(node, ast.FunctionDef) and node.returns is not None and ast.unparse(node.returns) == "Any":
            yield f"{node.name}()"


def test_few_attributes_and_results_are_any() -> None:
    found = [f"{module}: {where}" for module in modules() if module not in INTRINSICS for where in attributes_and_results(parsed(module))]
    assert len(found) < MOST, found


def test_any_is_seen() -> None:
    assert list(attributes_and_results(ast.parse("class A:\n    a: Any\n    b: int\n    def f(self) -> Any: ..."))) == ["A.a", "f()"]
    assert dict(parameters(ast.parse("def f(self, a: Any, *b: int, c=1): ..."))) == {"f(a)": "Any", "f(b)": "int", "f(c)": ""}
