"""PTX of a kernel, by two parts of what compiles the CPU's loops: Numba's front end, and LLVM, whose target NVPTX llvmlite brings.

    body and what it calls ──▶ LLVM IR by Numba, not optimized ──▶ one module, all inlined ──▶ optimized for NVPTX ──▶ PTX

For Numba this is a target of its own, without what is registered for CPUs alone. It calls functions as on a CPU; once they are inlined,
nothing is left of that.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext, CPUTargetOptions
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUTarget
from numba.core.target_extension import GPU, dispatcher_registry, jit_registry, target_override, target_registry

from kolumn.core.deferred import apply
from kolumn.kernels.machine.kernel import Kernel

_NAME, _TRIPLE = "kolumn_nvptx", "nvptx64-nvidia-cuda"
_REGISTERS, _MOST = 65_536, 255
"""Registers of a multiprocessor, and of a thread at most: too many for a block of more than 256 threads."""


class _Nvptx(GPU):
    """The target."""


class _Library(JITCodeLibrary):
    """IR of a function and of those that it calls, which is not for this processor: it is neither optimized for it nor loaded."""

    def _optimize_functions(self, ll_module: Any) -> None:
        pass

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _Codegen(JITCPUCodegen):
    _library_class = _Library


class _Context(CPUContext):
    def init(self) -> None:
        super().init()
        self._internal_codegen = _Codegen(_NAME)

    def get_executable(self, library: Any, fndesc: Any, env: Any) -> str:
        """What callers know a function by."""
        return str(fndesc.llvm_func_name)


class _Options(CPUTargetOptions):
    def finalize(self, flags: Any, options: dict[str, Any]) -> None:
        super().finalize(flags, options)
        flags.nrt = flags.boundscheck = flags.enable_pyobject = flags.enable_looplift = flags.enable_pyobject_looplift = False
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        # A division by zero is not checked for.
        flags.error_model = "numpy"


class _Target(CPUTarget):
    options = _Options

    @cached_property
    def _toplevel_target_context(self) -> Any:
        return _Context(self.typing_context, self._target_name)


class _Dispatcher(Dispatcher):
    targetdescr = _Target(_NAME)

    def add_overload(self, cres: Any) -> None:
        # Numba's own makes it callable from Python.
        self.overloads[tuple(cres.signature.args)] = cres


def _jit(**options: Any) -> Callable[[Callable[..., Any]], _Dispatcher]:
    return lambda function: _Dispatcher(function, targetoptions={"nopython": True, **options})


target_registry[_NAME], dispatcher_registry[_Nvptx], jit_registry[_Nvptx] = _Nvptx, _Dispatcher, _jit


@global_compiler_lock
def ptx(kernel: Kernel, arch: int) -> str:
    """PTX of a kernel for an architecture, and later ones."""
    apply()
    arguments = types.NamedUniTuple(types.int64, len(kernel.args._fields), kernel.args)
    dispatcher = _jit()(kernel.shell())
    with target_override(_NAME):
        dispatcher.compile((types.int64, arguments))
    (compiled,) = dispatcher.overloads.values()
    module = binding.parse_assembly(cgutils.normalize_ir_text(_entry(compiled, kernel.entry)))
    module.link_in(compiled.library._get_module_for_linking(), preserve=True)
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(_TRIPLE).create_target_machine(cpu=f"sm_{arch}", opt=3)
    module.triple, module.data_layout = _TRIPLE, str(machine.target_data)
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != kernel.entry:
            one.linkage = "internal"
    for one in module.functions:
        if not one.is_declaration:
            # Until LLVM has seen whether lanes meet in it.
            one.add_function_attribute("convergent")
            if one.name != kernel.entry:
                one.add_function_attribute("alwaysinline")
    # Each thread has its own item: there is nothing to gain from vectors.
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    text, most = str(machine.emit_assembly(module)), _REGISTERS // kernel.block
    # Let a block find room in a multiprocessor's registers, whoever assigns them: a driver's compiler may be any. `.maxntid` would say the
    # same, but with it ptxas spills for the sake of more blocks.
    return text if most >= _MOST else text.replace(")\n{", f")\n.maxnreg {most}\n{{")


def _entry(compiled: Any, name: str) -> str:
    """A module with the kernel, which calls the compiled function: parameters are n and the fields of the arguments."""
    context, described = compiled.target_context, compiled.fndesc
    module, word = context.create_module(name), ir.IntType(64)
    body = ir.Function(module, context.call_conv.get_function_type(described.restype, described.argtypes), described.llvm_func_name)
    kernel = ir.Function(module, ir.FunctionType(ir.VoidType(), [word] * (1 + len(described.argtypes[1]))), name)
    kernel.calling_convention = "ptx_kernel"
    builder = ir.IRBuilder(kernel.append_basic_block())
    n, *fields = kernel.args
    given = [n, context.make_tuple(builder, described.argtypes[1], fields)]
    context.call_conv.call_function(builder, body, described.restype, described.argtypes, given)
    builder.ret_void()
    # A table of places to go to is an indirect branch, which few lanes take together. llvmlite does not know the attribute.
    return str(module).replace(")\n{", ') "no-jump-tables"="true"\n{')
