"""Every kernel becomes machine code for the architectures that are shipped, without a GPU or a driver."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kit.ptx import shipped
from kolumn.cli.doctor import diagnosis
from kolumn.kernels import build
from kolumn.kernels.machine import image
from kolumn.kernels.machine.image import ARCHITECTURES, cubin

pytest.importorskip("nvidia.cu13", reason="compilers for CUDA: pip install '.[dev]'")
KERNELS = build.load_all()


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_no_spills(name: str, tmp_path: Path) -> None:
    kernel, source = KERNELS[name], tmp_path / "kernel.ptx"
    source.write_text(shipped(kernel))
    for arch in ARCHITECTURES:
        said = cubin(source, tmp_path / "kernel.cubin", arch)
        assert f"'{kernel.entry}'" in said
        assert re.findall(r"(\d+) bytes (?:stack frame|spill \w+)", said) == ["0"] * 3
        (registers,) = map(int, re.findall(r"Used (\d+) registers", said))
        assert registers <= kernel.registers


@pytest.mark.parametrize("name", KERNELS)
def test_parameters_are_plain_numbers(name: str) -> None:
    """A launch passes n and the fields of the arguments, 64 bits each, as `CudaRuntime.launch` does."""
    kernel = KERNELS[name]
    (parameters,) = re.findall(rf"\.entry {kernel.entry}\((.*?)\)", shipped(KERNELS[name]), re.DOTALL)
    assert re.findall(r"\.param \.(\w+)", parameters) == ["u64"] * (1 + len(kernel.args._fields))


def test_ahead_of_time(tmp_path: Path) -> None:
    stale = tmp_path / "fedcba9876543210"
    stale.mkdir()
    built = build.build(tmp_path, ["sizes", "gather"])
    assert list(tmp_path.iterdir()) == [built]
    kinds = ["ptx", *(f"sm_{arch}.cubin" for arch in ARCHITECTURES)]
    assert {path.name for path in built.iterdir()} == {f"{name}.{kind}" for name in ("sizes", "gather") for kind in kinds}
    # The PTX must not be newer than what CUDA 13.0's driver knows.
    (version,) = re.findall(r"\.version (\d+)\.\d+\n", (built / "sizes.ptx").read_text())
    assert int(version) < 9


def test_code_of_other_sources_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "files", lambda package: tmp_path)
    built, sizes = build.build(tmp_path / "compiled", ["sizes"]), KERNELS["sizes"]
    assert [image.image(sizes, arch) for arch in (90, 120)] == [built / "sizes.sm_90.cubin", built / "sizes.ptx"]
    said = f"in the package: {built.name}, for sm_80, sm_90, sm_100, and as PTX for later GPUs"
    assert diagnosis()["gpu"]["kernels"] == said
    built.rename(built.with_name("fedcba9876543210"))
    assert (image.image(sizes, 90), diagnosis()["gpu"]["kernels"]) == (image.compiled(sizes, 90), "compiled on first use")


def test_large_blocks_bound_their_registers() -> None:
    """In the text, so that the driver's compiler keeps to it as well: a block that needs more than there are is not launched."""
    bound = {name: re.findall(r"\n\.maxnreg (\d+)\n", shipped(kernel)) for name, kernel in KERNELS.items()}
    assert {name: limits for name, limits in bound.items() if limits} == {"hop_sliced": ["128"]}
    assert all(kernel.block <= 256 or bound[name] for name, kernel in KERNELS.items())


def test_no_compiler_is_needed() -> None:
    """Nor is CUDA's own: LLVM makes the PTX, of what is there for the CPU's loops."""
    program = "import sys; sys.modules.update(dict.fromkeys(['numba.cuda', 'numba_cuda', 'nvidia', 'cupy', 'cuda']))\n"
    program += "from kolumn.kernels import build; assert '.entry kolumn_sizes(' in build.ptx(build.load_all()['sizes'], 80)"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
    # Where the package brings code, Numba is not imported: that takes longer than a first chunk.
    program = "import sys; sys.modules['numba'] = None\nfrom kolumn.kernels import decode\nfrom kolumn.kernels.columns import table\n"
    program += "from kolumn.kernels.machine import image\nfrom kolumn.kernels.values import columns"
    subprocess.run([sys.executable, "-c", program], check=True)
