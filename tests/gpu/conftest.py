"""The device that tests run on: an emulated one; with the marker ``gpu`` a real one, or stand-ins for CUDA where there is none."""

import ast
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kolumn.core.keywords import DEFAULTS
from kolumn.kernels.machine import device as current

if TYPE_CHECKING:
    from kit.emulated import Emulated

HERE = Path(__file__).parent
OWN = ("kolumn", "kit", "bench", "conftest")
OF_KOLUMN = {"annotated_doc": ("test_engine.py",)}
"""What modules of Kolumn import that these files are about; a machine with a GPU may lack it."""


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules of other packages that a file imports at its top, by way of the test kit and the bench too."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{one.name}" for one in node.names if node.module in OWN)]
        for name in names:
            places = (root.joinpath(*name.split(".")).with_suffix(".py") for root in HERE.parents[:2])
            if name.split(".")[0] not in (*OWN, *sys.stdlib_module_names):
                found.add(name)
            found |= set().union(*(imported(place) for place in places if place.is_file()))
    return frozenset(found)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def lacking() -> dict[str, list[str]]:
    """Modules that are not there, and the files of tests that need them."""
    found: dict[str, set[str]] = {module: set(files) for module, files in OF_KOLUMN.items()}
    for path in HERE.glob("test_*.py"):
        for module in imported(path):
            found.setdefault(module, set()).add(path.name)
    return {module: sorted(files) for module, files in sorted(found.items()) if not _is_there(module)}


LACKING = lacking()
collect_ignore = sorted({name for files in LACKING.values() for name in files})


def pytest_report_header() -> list[str]:
    """Say what is not collected, and why."""
    return [f"tests/gpu: without {module}, these are left out: {', '.join(files)}" for module, files in LACKING.items()]


@pytest.fixture(autouse=True)
def _little_to_collect() -> Iterator[None]:
    """Stand-ins collect garbage to see what is left: they need not look at the half million objects that are older than the test."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _nvcomp(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests let nvCOMP decompress where they do not say otherwise."""
    monkeypatch.setitem(DEFAULTS, "trusted", True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator["Emulated | None"]:
    """Make ``backend="gpu"`` use the device; the emulated one, to look into, or None for Kolumn's own runtime."""
    from kit.emulated import nothing_hidden

    if request.node.get_closest_marker("gpu"):
        for package in ("cupy", "rmm"):
            pytest.importorskip(package, reason="make gpu-packages")
        from kit.standins import real, standing_in

        with nullcontext() if real() else standing_in(), nothing_hidden():
            yield None
        return
    from kit.emulated import Emulated, run_loops

    where = request.node.callspec.params.get("where") if hasattr(request.node, "callspec") else None
    with used(Emulated(run_loops, reads_files=where == "past the host")) as emulated:
        yield emulated


@contextmanager
def used(emulated: "Emulated") -> Iterator["Emulated"]:
    """For all threads; nothing may be written outside of its memory."""

    from kit.emulated import HostMemory, nothing_hidden

    HostMemory.overrun.clear()
    with current.using(emulated), nothing_hidden():
        yield emulated
    assert not HostMemory.overrun


@pytest.fixture(params=["loops", "ptx"])
def emulated(request: pytest.FixtureRequest) -> Iterator["Emulated"]:
    """The emulated device, whose kernels run as compiled loops, and as PTX with races looked for."""
    from kit.emulated import Emulated, run_loops

    if request.param == "loops":
        with used(Emulated(run_loops)) as loops:
            yield loops
        return
    pytest.importorskip("nvidia.cu13", reason="compilers for CUDA: pip install '.[dev]'")
    from kit.ptx import Machine

    with Machine(races=True).watching() as machine, used(Emulated(machine.run)) as threads:
        yield threads
