"""Numba's decorators without Numba: what they register is noted, and Numba learns it when something is compiled.

Importing Numba takes longer than everything else at the start of a process, and machine code that is there already does not need it.
`apply` imports Numba and registers what was noted; later registrations take effect at once.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

_noted: list[Callable[[], Any]] = []
_applied = False


class _Module:
    """A module that is imported when something of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


ir, types, cgutils, arrayobj = map(_Module, ("llvmlite.ir", "numba.core.types", "numba.core.cgutils", "numba.np.arrayobj"))


def apply() -> None:
    """Make everything that is registered known to Numba. This must be called before Numba compiles anything of Kolumn."""
    global _applied
    _applied = True
    while _noted:
        _noted.pop(0)()


def _note(register: Callable[[], Any]) -> None:
    if _applied:
        register()
    else:
        _noted.append(register)


def register_jitable(*functions: _Function, **options: Any) -> Any:
    """As `numba.extending.register_jitable`."""

    def wrap(function: _Function) -> _Function:
        def register() -> None:
            from numba.extending import register_jitable

            (register_jitable(**options) if options else register_jitable)(function)

        _note(register)
        return function

    return wrap(*functions) if functions else wrap


def overload(function: Callable[..., Any], **options: Any) -> Callable[[_Function], _Function]:
    """As `numba.extending.overload`."""

    def wrap(implementation: _Function) -> _Function:
        def register() -> None:
            from numba.extending import overload

            overload(function, **options)(implementation)

        _note(register)
        return implementation

    return wrap


class Intrinsic:
    """A function that only compiled code can call."""

    def __init__(self, definition: Callable[..., Any]) -> None:
        self._definition = definition
        self.__name__, self.__doc__, self.__module__ = definition.__name__, definition.__doc__, definition.__module__

    def register(self) -> None:
        """Make it known to Numba."""
        from numba.core.types import Function
        from numba.core.typing.templates import infer, infer_global, make_intrinsic_template

        # What `numba.extending.intrinsic` does with its own handle.
        template = make_intrinsic_template(self, self._definition, self.__name__)
        infer(template)
        infer_global(self, Function(template))

    def __call__(self, *arguments: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} can be called by compiled code alone")


def intrinsic(definition: Callable[..., Any]) -> Any:
    """As `numba.extending.intrinsic`."""
    made = Intrinsic(definition)
    _note(made.register)
    return made
