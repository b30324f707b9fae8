"""The device that tests run on: an emulated one, or with the marker ``gpu`` a real one."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from kolumn.kernels.machine import device as current

if TYPE_CHECKING:
    from kit.emulated import Emulated

WITHOUT = {
    # What the emulated device, or a test itself, cannot do without. A machine with a GPU may lack it.
    "cramjam": ("test_columns.py", "test_direct.py", "test_frames.py", "test_same.py", "test_values.py"),
    "annotated_doc": ("test_engine.py",),
    "fastavro": ("test_nested_values.py",),
    "google.protobuf": ("test_message_values.py",),
    "numba.cuda": ("test_compile.py", "test_same.py", "test_columns.py", "test_values.py"),
}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


LACKING = {module: files for module, files in WITHOUT.items() if not _is_there(module)}
collect_ignore = sorted({name for files in LACKING.values() for name in files})


def pytest_report_header() -> list[str]:
    """Say what is not collected, and why."""
    return [f"tests/gpu: without {module}, these are left out: {', '.join(files)}" for module, files in LACKING.items()]


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator["Emulated | None"]:
    """Make ``backend="gpu"`` use the device; the emulated one, to look into, or None for a real one."""
    if request.node.get_closest_marker("gpu"):
        yield None
        return
    from kit.emulated import Emulated, HostMemory, run_loops
    from kit.hidden import nothing_hidden

    where = request.node.callspec.params.get("where") if hasattr(request.node, "callspec") else None
    emulated = Emulated(run_loops, reads_files=where == "past the host")
    HostMemory.overrun.clear()
    with current.using(emulated), nothing_hidden():
        yield emulated
    assert not HostMemory.overrun


@pytest.fixture(params=["loops", "ptx"])
def emulated(request: pytest.FixtureRequest) -> Iterator["Emulated"]:
    """The emulated device, whose kernels run as compiled loops, and as PTX with races looked for."""
    from kit.emulated import Emulated, HostMemory, run_loops
    from kit.hidden import nothing_hidden

    HostMemory.overrun.clear()
    if request.param == "loops":
        loops = Emulated(run_loops)
        with current.using(loops), nothing_hidden():
            yield loops
    else:
        pytest.importorskip("nvidia.cu13", reason="compilers for CUDA: pip install 'kolumn[dev]'")
        from kit.ptx import Machine

        with Machine(races=True).watching() as machine:
            threads = Emulated(machine.run)
            with current.using(threads), nothing_hidden():
                yield threads
    assert not HostMemory.overrun
