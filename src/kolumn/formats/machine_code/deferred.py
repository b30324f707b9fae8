"""Numba's decorators without Numba: what they register is noted, and Numba learns it when something is compiled.

Importing Numba takes longer than everything else at the start of a process, and machine code that is there already does not need it.
`apply` imports Numba and registers what was noted; later registrations take effect at once.

The largest risk of this package: it uses private and undocumented parts of Numba, which may change with any release. So pyproject.toml
bounds the versions, and the machine code that a wheel brings needs none of them. They are used

* here: `make_intrinsic_template`, `infer`, `infer_global` of ``numba.core.typing.templates``, and the modules below of ``numba.core``;
* in `kolumn.cpu_fallback.machine.emit`: the compile result (`target_context`, `fndesc`, `library._get_module_for_linking`), the calling
  convention, the code generator's `_tm` and `_pass_builder`, the option ``_nrt``;
* in `kolumn.cpu_fallback.machine.address` and `kolumn.kernels.machine.kernel`: `make_array` and its `_getvalue`, `meminfo`, `parent`;
* in `kolumn.kernels.machine.nvptx`: a target, context, code generator and dispatcher derived from the CPU's.
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


ir, types, cgutils, arrayobj, _extending = map(
    _Module, ("llvmlite.ir", "numba.core.types", "numba.core.cgutils", "numba.np.arrayobj", "numba.extending")
)


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
        _note(lambda: (_extending.register_jitable(**options) if options else _extending.register_jitable)(function))
        return function

    return wrap(*functions) if functions else wrap


def overload(function: Callable[..., Any], **options: Any) -> Callable[[_Function], _Function]:
    """As `numba.extending.overload`."""

    def wrap(implementation: _Function) -> _Function:
        _note(lambda: _extending.overload(function, **options)(implementation))
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
