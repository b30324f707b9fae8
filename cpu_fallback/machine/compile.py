"""`compiled` makes a loop for the CPU: it releases the GIL, checks no bounds, and its machine code is kept on disk.

    call ──▶ code in the package, else in the user's folder ──▶ loaded, at the first call
                        │ none
                        └──▶ compiled with the other loops of its group (`compile_ahead`)

Only what compiles imports Numba. This module makes the scalar functions of every format callable from loops.
"""

import struct
from collections.abc import Callable
from ctypes import addressof, c_char, c_double, c_int64
from functools import update_wrapper
from typing import Any, TypeVar, cast

import kolumn.formats.words  # noqa: F401
from kolumn.core.deferred import overload
from kolumn.cpu_fallback.machine import loops
from kolumn.cpu_fallback.machine.arrays import ArrayKind, Kind, arguments, results
from kolumn.cpu_fallback.machine.compile_ahead import object_code
from kolumn.cpu_fallback.machine.crc import link

_Loop = TypeVar("_Loop", bound=Callable[..., Any])


def compiled(function: _Loop) -> _Loop:
    """Make a loop for the CPU: it releases the GIL, and processes share its machine code. Parameters and the result must be annotated, see
    `kolumn.cpu_fallback.machine.arrays`."""
    return cast(_Loop, Loop(function))


class Loop:
    """A function that runs as machine code; `py_func` is the function in Python, and `name` is its key in `loops.LOOPS`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.name = f"{function.__module__}:{function.__qualname__}"
        self._run: Callable[..., Any] | None = None
        loops.LOOPS[self.name] = self
        # Other loops may call this one, as any function.
        overload(self, strict=False)(lambda *given: function)

    def __call__(self, *given: Any) -> Any:
        return (self._run or self._loaded())(*given)

    def _loaded(self) -> Callable[..., Any]:
        code = loops.stored(self.name) or object_code(self.name)
        link()
        self._run = caller(self.name, self.py_func, loops.load(code, loops.entry_of(self.name)))
        return self._run


def caller(name: str, function: Callable[..., Any], entry: Callable[[bytes, Any], int]) -> Callable[..., Any]:
    """The function that Python calls: arguments become words, and words become the result. It is made as text, one expression for all
    arguments, because calls for each field would take longer than some loops."""
    kinds, returned = arguments(function), results(function)
    types = returned if isinstance(returned, list) else [] if returned is None else [returned]
    known: dict[str, Any] = {
        "pack": struct.Struct("".join(map(_format, kinds))).pack, "address": _address, "addressof": addressof, "buffer": c_char.from_buffer,
        "space": c_int64 * max(1, len(types)), "entry": entry, "failed": _failed,
        "name": name, "real": lambda word: c_double.from_buffer(c_int64(word)).value,
    }  # fmt: skip
    names = [f"a{number}" for number in range(len(kinds))]
    words = [word for each, kind in zip(names, kinds, strict=True) for word in _words(each, kind, known)]
    found = [{int: "out[{}]", bool: "out[{}] != 0", float: "real(out[{}])"}[kind].format(place) for place, kind in enumerate(types)]
    result = f"({', '.join(found)},)" if isinstance(returned, list) else found[0] if found else "None"
    text = f"def run({', '.join(names)}):\n out = space()\n code = entry(pack({', '.join(words)}), out)\n"
    exec(f"{text} if code: failed(name, code)\n return {result}", known)
    run: Callable[..., Any] = known["run"]
    return run


def _failed(name: str, code: int) -> None:
    raise RuntimeError(f"{name}: machine code ended with {code}; please report this")


def _words(name: str, kind: Kind, known: dict[str, Any]) -> list[str]:
    """Expressions for the words of an argument; layouts of arrays become ``known``."""
    if isinstance(kind, ArrayKind):
        array, dtype = f"kind{len(known)}", f"dtype{len(known)}"
        known[array], known[dtype] = kind, kind.dtype
        # The short way to the address takes only what can be written and is not empty.
        short = f"{name}.dtype is {dtype} and {name}.ndim == {kind.ndim} and {name}.size and {name}.flags.carray"
        place = f"addressof(buffer({name})) if {short} else address({name}, {array})"
        return [place, *(f"{name}.shape[{axis}]" for axis in range(kind.ndim))]
    if isinstance(kind, tuple):
        return [word for field, inner in enumerate(kind[1]) for word in _words(f"{name}[{field}]", inner, known)]
    return [name]


def _address(array: Any, layout: ArrayKind) -> int:
    flags = array.flags
    if array.dtype != layout.dtype or array.ndim != layout.ndim or not (flags.carray or (layout.readonly and flags.c_contiguous)):
        raise TypeError(f"expected a contiguous array like {layout}, found {array.dtype} of {array.ndim} dimensions, {flags}")
    return int(array.__array_interface__["data"][0])


def _format(kind: Kind) -> str:
    if isinstance(kind, ArrayKind):
        return "q" * (1 + kind.ndim)
    if isinstance(kind, tuple):
        return "".join(map(_format, kind[1]))
    return {int: "q", bool: "?7x", float: "d"}[kind]
