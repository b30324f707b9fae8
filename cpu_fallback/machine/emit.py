"""Compiles a loop by Numba to object code that needs neither Numba nor Python to run.

The object has one function, which takes its arguments and writes its results as words of 64 bits (`arrays`):

    int32 entry(const int64 *arguments, int64 *results)        0, or Numba's code of an exception
"""

import os
from collections.abc import Callable
from typing import Any

from kolumn.core.deferred import apply, arrayobj, cgutils, ir, types
from kolumn.cpu_fallback.machine import processor
from kolumn.cpu_fallback.machine.arrays import Kind, arguments, results
from kolumn.cpu_fallback.machine.crc import SYMBOLS, link

EXTERNAL = {"memcpy", "memmove", "memset", "memcmp", "pread"} | SYMBOLS
"""What object code may need: functions of the C library, and the variables of the checksums."""


def emit(function: Callable[..., Any], entry: str) -> bytes:
    """Object code of a loop, with a function of the name ``entry``. Raises `TypeError`: its annotations do not say what it returns. Raises
    `RuntimeError`: it needs something that is not there without Numba."""
    apply()
    link()
    from llvmlite import binding
    from numba import njit

    dispatcher = njit(nogil=True, boundscheck=False, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    dispatcher.compile(tuple(map(_numba_type, arguments(function))))
    (compiled,) = dispatcher.overloads.values()
    context, codegen = compiled.target_context, compiled.target_context.codegen()
    if _words(compiled.fndesc.restype) != results(function):
        raise TypeError(f"{entry} returns {compiled.fndesc.restype}, and not {results(function)}")
    module = binding.parse_assembly(cgutils.normalize_ir_text(str(_entry(context, compiled.fndesc, entry))))
    module.link_in(compiled.library._get_module_for_linking(), preserve=True)
    for symbol in (*module.functions, *module.global_variables):
        if not symbol.is_declaration and symbol.name != entry:
            symbol.linkage = "internal"
    machine, builder = _arm(module) if processor.FOR_ARM in os.environ else (codegen._tm, codegen._pass_builder())
    builder.getModulePassManager().run(module, builder)
    needed = {
        symbol.name
        for symbol in (*module.functions, *module.global_variables)
        if symbol.is_declaration and not symbol.name.startswith("llvm.")
    }
    if needed - EXTERNAL:
        raise RuntimeError(f"{entry} needs {', '.join(sorted(needed - EXTERNAL))}")
    return bytes(machine.emit_object(module))


def _arm(module: Any) -> tuple[Any, Any]:
    """Make a module one for AArch64: the machine that emits it, and the builder of its passes. What Numba made is for any processor with
    words of 64 bits, as long as it was not asked for instructions of x86-64."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    cpu, features = processor.LEVELS[processor.ARM]
    settings = {"cpu": cpu, "features": ",".join(f"+{name}" for name in features), "opt": 3, "reloc": "pic", "codemodel": "small"}
    machine = binding.Target.from_triple(processor.ARM_TRIPLE).create_target_machine(**settings)
    module.triple, module.data_layout = processor.ARM_TRIPLE, str(machine.target_data)
    return machine, binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))


def _numba_type(kind: Kind) -> Any:
    if kind in (int, bool, float):
        return {int: types.int64, bool: types.boolean, float: types.float64}[kind]
    if hasattr(kind, "ndim"):
        from numba import from_dtype

        return types.Array(from_dtype(kind.dtype), kind.ndim, "C", readonly=kind.readonly)
    cls, fields = kind
    return types.BaseTuple.from_types([_numba_type(field) for field in fields], cls)


def _words(kind: Any) -> list[type] | type | None:
    """As `arrays.results`, of Numba's type."""
    if isinstance(kind, types.BaseTuple):
        return [_word(inner) for inner in kind.types]
    return None if isinstance(kind, types.NoneType) else _word(kind)


def _word(kind: Any) -> type:
    return bool if isinstance(kind, types.Boolean) else float if isinstance(kind, types.Float) else int


def _entry(context: Any, described: Any, name: str) -> Any:
    """A module with the function that calls a compiled loop."""
    module = context.create_module(name)
    code, words = ir.IntType(32), ir.IntType(64).as_pointer()
    kind = context.call_conv.get_function_type(described.restype, described.argtypes)
    loop = ir.Function(module, kind, described.llvm_func_name)
    function = ir.Function(module, ir.FunctionType(code, [words, words]), name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    given, position = [], 0
    for one in described.argtypes:
        value, position = _load(context, builder, one, function.args[0], position)
        given.append(value)
    status, result = context.call_conv.call_function(builder, loop, described.restype, described.argtypes, given)
    with builder.if_then(status.is_error, likely=False):
        builder.ret(status.code)
    parts = cgutils.unpack_tuple(builder, result) if isinstance(described.restype, types.BaseTuple) else [result]
    for place, (one, part) in enumerate(zip(getattr(described.restype, "types", [described.restype]), parts, strict=True)):
        if not isinstance(one, types.NoneType):
            builder.store(_as_word(builder, one, part), cgutils.gep_inbounds(builder, function.args[1], place))
    builder.ret(code(0))
    return module


def _load(context: Any, builder: Any, kind: Any, words: Any, position: int) -> tuple[Any, int]:
    """An argument from the words at ``position``, and where the next one begins."""

    def word(position: int) -> Any:
        return builder.load(cgutils.gep_inbounds(builder, words, position))

    if isinstance(kind, types.BaseTuple):
        parts = []
        for one in kind.types:
            part, position = _load(context, builder, one, words, position)
            parts.append(part)
        return context.make_tuple(builder, kind, parts), position
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder)
        shape = [word(position + 1 + k) for k in range(kind.ndim)]
        item = strides_from = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        strides: list[Any] = []
        for count in reversed(shape):
            strides.insert(0, strides_from)
            strides_from = builder.mul(strides_from, count)
        data = builder.inttoptr(word(position), array.data.type)
        arrayobj.populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
        return array._getvalue(), position + 1 + kind.ndim
    if isinstance(kind, types.Float):
        return builder.bitcast(word(position), ir.DoubleType()), position + 1
    return (builder.trunc(word(position), ir.IntType(1)) if isinstance(kind, types.Boolean) else word(position)), position + 1


def _as_word(builder: Any, kind: Any, value: Any) -> Any:
    word = ir.IntType(64)
    if isinstance(kind, types.Float):
        return builder.bitcast(value, word)
    if value.type.width == word.width:
        return value
    return builder.sext(value, word) if getattr(kind, "signed", False) else builder.zext(value, word)
