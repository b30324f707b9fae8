"""pytest plugin: tests that run kernels as loops or as PTX on the CPU run the shipped cubins on the GPU, over page-locked memory.

    python -m pytest -p kit.on_gpu tests/gpu/test_ptx.py ... -m "not gpu" -k "not loops"

Page-locked memory has the same address on the host and on the device, so the emulated device of the test kit needs no change: its memory is
that, its launches go to the GPU, and everything else (uploads, sums, codecs) stays on the host. So this needs CuPy and the kernels, and no
RMM, nvCOMP or pylibcudf; what fails here is the machine code of a kernel or its launch, and nothing else.

KOLUMN_FAKE_GPU=1   no GPU: the loops of the kit run in the place of launches, to try this plugin
ON_GPU_LOG=FILE     a line for each launch that failed, with kernel and arguments
An error of CUDA ends the process: its context is of no use any more. pytest-xdist starts another one and goes on.
"""

import os
import sys
import types
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import pytest

FAKE = os.environ.get("KOLUMN_FAKE_GPU") == "1"
LOG = os.environ.get("ON_GPU_LOG", "")
FATAL = (
    "cudaErrorIllegalAddress", "cudaErrorLaunchFailure", "cudaErrorMisalignedAddress", "cudaErrorLaunchTimeout",
    "cudaErrorHardwareStackError", "cudaErrorIllegalInstruction", "cudaErrorInvalidAddressSpace", "cudaErrorInvalidPc", "cudaErrorAssert",
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_MISALIGNED_ADDRESS", "cudaErrorECCUncorrectable",
)  # fmt: skip


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    if LOG:
        with open(LOG, "a") as file:
            file.write(text + "\n")


try:
    there = find_spec("nvidia.cu13") is not None
except ModuleNotFoundError:
    there = False
if not there:
    # Tests ask for the compilers of CUDA, which are not needed here.
    sys.modules.setdefault("nvidia", types.ModuleType("nvidia"))
    sys.modules["nvidia.cu13"] = types.ModuleType("nvidia.cu13")

from kit import emulated  # noqa: E402
from kit import ptx as machine_module  # noqa: E402

loops = emulated.run_loops
ran = Counter()

if not FAKE:
    import cupy

    from kolumn.kernels.machine.image import image

    _pool = cupy.cuda.PinnedMemoryPool()
    _arch = int(cupy.cuda.Device().compute_capability)
    _most = 32 * cupy.cuda.Device().attributes["MultiProcessorCount"]
    _functions = {}
    emulated.take = lambda size: np.frombuffer(_pool.malloc(size), np.uint8, size)


def run(kernel, n, args):
    if FAKE:
        loops(kernel, n, args)
    else:
        _launch(kernel, n, args)
    ran[kernel.name] += 1


def _launch(kernel, n, args):
    if kernel.name not in _functions:
        _functions[kernel.name] = cupy.RawModule(path=str(image(kernel, _arch))).get_function(kernel.entry)
    blocks = kernel.grid(n, _most)
    try:
        _functions[kernel.name]((blocks,), (kernel.block,), (np.int64(n), *map(np.int64, args)))
        cupy.cuda.runtime.deviceSynchronize()
    except Exception as error:
        note(f"LAUNCH {kernel.name} n={n} blocks={blocks} {args}: {error} [{os.environ.get('PYTEST_CURRENT_TEST')}]")
        raise


whole_init = emulated.Emulated.__init__


def _emulated(self, run_by, *rest, **named):
    # The fixtures' loops; tests that compare with loops have their own.
    if run_by is loops and sys._getframe(1).f_code.co_filename.endswith("conftest.py"):
        run_by = run
    whole_init(self, run_by, *rest, **named)


emulated.Emulated.__init__ = _emulated  # type: ignore[assignment]


class OnGpu:
    """In the place of `kit.ptx.Machine`."""

    def __init__(self, *_, **__):
        self.ran, self.launches = Counter(), 0

    @contextmanager
    def watching(self):
        yield self

    def run(self, kernel, n, args):
        self.ran[kernel.name] += 1
        run(kernel, n, args)


machine_module.Machine = OnGpu  # type: ignore[assignment, misc]


@pytest.fixture(autouse=True, scope="session")
def _kernels_that_ran():
    yield
    note(f"RAN {dict(sorted(ran.items()))}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.excinfo is not None:
        text = str(report.longrepr)
        if any(name in text for name in FATAL):
            note(f"FATAL in {item.nodeid}:\n{text[-6000:]}")
            sys.stderr.flush()
            os._exit(97)
    return report
