"""No hot kernel takes more instructions, or touches more memory, than `bench.gpu_costs` says: the table is the test."""

import re
import sys
from pathlib import Path

import pytest
from bench import gpu_model
from bench.gpu_costs import COSTS, RECORD_BYTES, Limits

from kit.ptx_decode import VALUES, WAYS, Decoded, counted, found_by
from kolumn.kernels import check
from kolumn.kernels.build import load_all
from kolumn.kernels.machine.image import OLDEST, compiled, cubin
from kolumn.kernels.machine.kernel import WARP

pytest.importorskip("nvidia.cu13", reason="compilers for CUDA: pip install '.[dev]'")
OF_THE_TABLE = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted of what Numba makes of Python 3.11's bytecode")
SLACK = 1.03
"""How much a limit may be above what is counted: less than the 10 % that have to be noticed, more than rounding."""


def beyond(found: dict[str, Limits], limits: dict[str, Limits]) -> list[str]:
    """What costs more than the table says; and what so much less that the table has to be brought up to date."""
    wrong = [f"{name} is not in the table" for name in set(found) ^ set(limits)]
    for name in set(found) & set(limits):
        for what, most, is_ in zip(Limits._fields, limits[name], found[name], strict=True):
            if is_ > most:
                wrong.append(f"{name}: {what} {is_:.4g}, at most {most:.4g}")
            elif most > SLACK * is_:
                wrong.append(f"{name}: {what} {is_:.4g}, put that into bench/gpu_costs.py in place of {most:.4g}")
    return wrong


@pytest.fixture(scope="module", params=[*WAYS, *VALUES])
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Decoded]:
    return request.param, found_by(request.param, tmp_path_factory.mktemp("budgets"))


@pytest.mark.nightly
@OF_THE_TABLE
def test_budgets(way: tuple[str, Decoded]) -> None:
    name, found = way
    assert found.bytes / found.records == pytest.approx(RECORD_BYTES[name], rel=0.001)
    assert beyond(counted(name, found), COSTS[name]) == []
    assert name in WAYS or tuple(one.kernel for one in found.launches) == gpu_model.VALUES[name]
    assert {call: count for call, count in found.asked.items() if count} == gpu_model.ASKED.get(name, {})


@pytest.mark.parametrize("name", COSTS)
def test_ten_percent_more_is_too_much(name: str) -> None:
    for kernel, costs in COSTS[name].items():
        for what, value in zip(Limits._fields, costs, strict=True):
            if value:
                worse = {**COSTS[name], kernel: costs._replace(**{what: 1.1 * value})}
                assert [one.split(":")[0] for one in beyond(worse, COSTS[name])] == [kernel]


def warps_that_fit(registers: int, shared: int, block: int) -> int:
    """Of sm_90 (CUDA C++ Programming Guide, "Compute Capabilities"): blocks are there whole, a warp's registers come in units of 256."""
    warps = block // WARP
    by_registers = 65536 // (-(-registers * WARP // 256) * 256) // warps
    by_shared = (228 << 10) // (shared + 1024)
    return warps * min(by_registers, by_shared, 64 // warps, 32)


@OF_THE_TABLE
def test_warps_of_the_model(tmp_path: Path) -> None:
    kernels, found = load_all(), {}
    for name in sorted({name for costs in COSTS.values() for name in costs}):
        said = cubin(compiled(kernels[name], OLDEST), tmp_path / name, 90)
        registers, shared = (int(one[1]) if (one := re.search(rf"(\d+) {what}", said)) else 0 for what in ("registers", "bytes smem"))
        found[name] = warps_that_fit(registers, shared, kernels[name].block)
    assert {name: warps for name, warps in found.items() if warps < 64} == gpu_model.RESIDENT
    assert gpu_model.MULTIPROCESSORS * gpu_model.RESIDENT["check"] == check.WARPS


def test_predictions() -> None:
    """Limits near each other add up to more than the longest; the goals are predicted to be met, and what costs more takes longer."""
    near = {"issue": 4.0, "lines": 0.0, "shared": 4.0, "memory": 0.0, "latency": 0.1}
    assert 4.0 < gpu_model.together(near, 48) < 4.5 < gpu_model.together(near, 2) < 8.0 + 0.1
    assert gpu_model.together(near | {"shared": 0.0}, 48) == pytest.approx(4.0, rel=1e-3)
    apart, found = gpu_model.predictions(apart=True), gpu_model.predictions()
    assert all(apart[step]["ms"] >= found[step]["ms"] for step in found)
    assert all(one["ms"] > 0 and one["GB/s"] > 0 for one in found.values())
    assert [step for step, (unit, least) in gpu_model.GOALS.items() if found[step][unit] < least] == []
    with pytest.MonkeyPatch.context() as patch:
        dear = COSTS["16 KiB"]["gather"]
        patch.setitem(COSTS["16 KiB"], "gather", dear._replace(instructions=3 * dear.instructions))
        worse = gpu_model.predictions()
    assert (worse["columns"]["ms"] > found["columns"]["ms"], worse["checksums"]) == (True, found["checksums"])
