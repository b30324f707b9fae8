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
from types import FunctionType
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

    # Nothing calls an implementation by its address.
    how = {"jit_options": {"no_cfunc_wrapper": True}, **options}

    def wrap(implementation: _Function) -> _Function:
        _note(lambda: _extending.overload(function, **how)(implementation))
        return implementation

    return wrap


# By the number of arguments: a function of Python that calls an intrinsic.
_CALLS: tuple[Callable[[Any], Any], ...] = (
    lambda by: lambda: by(), lambda by: lambda a: by(a), lambda by: lambda a, b: by(a, b), lambda by: lambda a, b, c: by(a, b, c)
)  # fmt: skip


def implement(function: Callable[..., Any], by: Any, **options: Any) -> None:
    """Let compiled code call another function, or an intrinsic, in place of ``function``; ``options`` are those of `overload`."""
    body = by if isinstance(by, FunctionType) else _CALLS[function.__code__.co_argcount](by)
    overload(function, strict=False, **options)(lambda *given: body)


class Intrinsic:
    """A function that only compiled code can call; ``described`` has its name and its arguments, after one for Numba."""

    def __init__(self, definition: Callable[..., Any], described: Callable[..., Any]) -> None:
        self._definition, self._described = definition, described
        self.__name__, self.__doc__, self.__module__ = described.__name__, described.__doc__, described.__module__

    def register(self) -> None:
        """Make it known to Numba."""
        from inspect import signature

        from numba.core.types import Function
        from numba.core.typing.templates import infer, infer_global, make_intrinsic_template

        self._definition.__signature__ = signature(self._described)  # type: ignore[attr-defined]
        # What `numba.extending.intrinsic` does with its own handle.
        template = make_intrinsic_template(self, self._definition, self.__name__)
        infer(template)
        infer_global(self, Function(template))

    def __call__(self, *arguments: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} can be called by compiled code alone")


def intrinsic(definition: Callable[..., Any]) -> Any:
    """As `numba.extending.intrinsic`."""
    return _intrinsic(definition, definition)


def _intrinsic(definition: Callable[..., Any], described: Callable[..., Any]) -> Any:
    made = Intrinsic(definition, described)
    _note(made.register)
    return made


def instruction(emit: Callable[..., Any]) -> Any:
    """An intrinsic of words: ``emit(builder, *arguments)`` returns the result, also a word; there is none if it is annotated with None."""

    def definition(typing: Any, *given: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            result = emit(builder, *args)
            return context.get_dummy_value() if result is None else result

        returned = types.void if emit.__annotations__["return"] is None else types.int64
        return returned(*(types.int64 for _ in given)), lower

    return _intrinsic(definition, emit)
