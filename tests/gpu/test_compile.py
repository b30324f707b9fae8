"""Every kernel becomes machine code for the architectures that are shipped, without a GPU or a driver."""

import re
from pathlib import Path

import pytest

from kit.ptx import shipped
from kolumn.kernels import build

pytest.importorskip("nvidia.cu13", reason="compilers for CUDA: pip install 'kolumn[dev]'")
KERNELS = build.load_all()


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_no_spills(name: str, tmp_path: Path) -> None:
    kernel = KERNELS[name]
    source = tmp_path / "kernel.ptx"
    source.write_text(shipped(KERNELS[name]))
    for arch in build.ARCHITECTURES:
        said = build.cubin(source, tmp_path / "kernel.cubin", arch)
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
    build.build(tmp_path, ["sizes", "gather"])
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{kind}" for name in ("sizes", "gather") for kind in ("ptx", *(f"sm_{arch}.cubin" for arch in build.ARCHITECTURES))
    }
    # The PTX must not be newer than what CUDA 13.0's driver knows.
    assert ".version 9.0" in (tmp_path / "sizes.ptx").read_text()
