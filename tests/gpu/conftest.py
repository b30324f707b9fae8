"""The device that tests run on: an emulated one, or with the marker ``gpu`` a real one."""

from collections.abc import Iterator

import pytest

from kit.emulated import Emulated, HostMemory, run_loops
from kolumn.kernels.machine import device as current


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[Emulated | None]:
    """Make ``backend="gpu"`` use the device; the emulated one, to look into, or None for a real one."""
    if request.node.get_closest_marker("gpu"):
        yield None
        return
    where = request.node.callspec.params.get("where") if hasattr(request.node, "callspec") else None
    emulated = Emulated(run_loops, reads_files=where == "past the host")
    HostMemory.overrun.clear()
    with current.using(emulated):
        yield emulated
    assert not HostMemory.overrun
