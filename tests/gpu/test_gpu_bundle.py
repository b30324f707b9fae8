"""`bench/gpu_bundle.py`: libraries keep the code of one card, and what is packed here is what `gpu_check` finds there."""

import os
import struct
import sys
from pathlib import Path

import pytest
from bench import gpu_bundle, gpu_check

HERE = f"py{sys.version_info.major}{sys.version_info.minor}"
CUBIN, PTX = 2, 1


def entry(kind: int, arch: int, code: bytes) -> bytes:
    """Code in a fat binary, after a header of 64 bytes."""
    return struct.pack("<HHIQ12xI", kind, 0x101, 64, len(code), arch).ljust(64, b"h") + code


def fat(*entries: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


def library(sections: dict[bytes, bytes]) -> bytearray:
    """A 64-bit ELF file with nothing but sections and their names."""
    names = b"\0" + b"".join(name + b"\0" for name in sections) + b".shstrtab\0"
    body, headers = b"", b""
    for name, data in (*sections.items(), (b".shstrtab", names)):
        headers += struct.pack("<I20xQQ24x", names.index(name + b"\0"), 64 + len(body), len(data))
        body += data
    head = b"\x7fELF".ljust(40, b"\0") + struct.pack("<Q10xHHH", 64 + len(body), 64, 1 + len(sections), len(sections))
    return bytearray(head + body + headers)


def test_code_of_other_cards_is_zeroed() -> None:
    """Headers, gaps between fat binaries, and other sections stay."""
    kept, code = b"for this card", b"for another card"
    gap, text = bytes(24), b"text " + entry(CUBIN, 80, code)

    def made(other: bytes) -> bytearray:
        first = fat(entry(CUBIN, 80, other), entry(CUBIN, 90, kept), entry(PTX, 90, other))
        return library({b".text": text, b".nv_fatbin": first + gap + fat(entry(CUBIN, 90, kept), entry(CUBIN, 100, other)), b".data": text})

    found = made(code)
    assert (gpu_bundle.slim(found, 90), found) == (2 * len(kept), made(bytes(len(code))))


def test_a_library_without_code_for_the_card_stays(tmp_path: Path) -> None:
    path = tmp_path / "nvidia" / "lib.so.5"
    path.parent.mkdir()
    before = library({b".nv_fatbin": fat(entry(PTX, 80, b"ptx"))})
    path.write_bytes(before)
    gpu_bundle.slim_all(tmp_path, 90)
    assert path.read_bytes() == before


def test_versions_are_asked_for_what_the_machine_lacks() -> None:
    there = {"numpy": None, "cupy-cuda13x": None, "nvidia-cuda-nvrtc": None}
    assert {name: gpu_bundle.kind_of(name) for name in there} == there
    assert [gpu_bundle.kind_of(name) for name in ("rmm-cu13", "cuda-bindings", "nvidia-libnvcomp-cu13", "isal")] == ["core"] * 4
    assert gpu_bundle.kind_of("pylibcudf-cu13") == "cudf"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    made, bundle = tmp_path / "made", tmp_path / "bundle"
    files = ("of_core.py", "nvidia/libnvcomp/lib64/libnvcomp.so.5", "nvidia/libnvcomp/include/nvcomp.h", "bin/tool")
    for name in (*files, "of_cudf.py", "kernels/compiled/0123/hop.sm_90.cubin"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(name.encode() + os.urandom(300))
    bundle.mkdir()
    gpu_bundle.pack(bundle / f"core-{HERE}.tar.xz", made, ["bin", "nvidia", "of_core.py"], part_bytes=500)
    gpu_bundle.pack(bundle / f"cudf-{HERE}.tar.xz", made, ["of_cudf.py"])
    gpu_bundle.pack(bundle / "cudf-py27.tar.xz", made, ["bin"])
    gpu_bundle.pack(bundle / "compiled.tar.xz", made, ["kernels"])
    return bundle


def test_parts_become_packages(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {path.stat().st_size for path in bundle.glob("core*")} > {500}
    packages, tree = tmp_path / "packages", tmp_path / "tree"
    packages.mkdir()
    monkeypatch.setenv("PYTHONPATH", "before")
    for name in ("LD_LIBRARY_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpu_bundle, "CUDA", tmp_path)
    found = gpu_bundle.unpack(bundle, packages, tree)
    assert found["PYTHONPATH"] == f"before{os.pathsep}{packages}"
    assert str(packages / "nvidia" / "libnvcomp" / "lib64") in found["LD_LIBRARY_PATH"].split(os.pathsep)
    assert found["CUDA_HOME"] == str(tmp_path)
    for folder in (packages, tree):
        for path in filter(Path.is_file, folder.rglob("*")):
            assert path.read_bytes() == (tmp_path / "made" / path.relative_to(folder)).read_bytes()
    names = sorted(str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file())
    assert names == ["nvidia/libnvcomp/lib64/libnvcomp.so.5", "of_core.py", "of_cudf.py"]
    assert (tree / "kernels" / "compiled" / "0123" / "hop.sm_90.cubin").is_file()


def test_parts_that_are_missing_or_replaced(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An archive that lacks one is left out; another bundle leaves none of the last one's behind."""
    min(bundle.glob("core*")).unlink()
    (packages := tmp_path / "packages").mkdir()
    gpu_bundle.unpack(bundle, packages, tmp_path / "tree")
    assert [path.name for path in packages.iterdir()] == ["of_cudf.py"]
    assert "parts are here, it is left out" in capsys.readouterr().out
    gpu_bundle.pack(bundle / f"core-{HERE}.tar.xz", tmp_path / "made", ["of_cudf.py"])
    assert [path.name for path in bundle.glob("core*")] == [f"core-{HERE}.tar.xz"]


def test_gpu_check_runs_with_the_bundle(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (bundle / "compiled.tar.xz").unlink()
    for name, value in {"KOLUMN_FAKE_GPU": "1", "PYTHONPATH": "", "LD_LIBRARY_PATH": "", "CUDA_HOME": "there"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(gpu_check, "BUNDLE", bundle)
    monkeypatch.setattr(gpu_check, "FAKE", True)
    monkeypatch.setattr(gpu_check, "NEEDED", {"of_core": "a package of the bundle"})
    code = (
        "import importlib.util as u, os; assert u.find_spec('of_core') and u.find_spec('of_cudf')\n"
        "assert any(os.path.exists(f'{p}/libnvcomp.so.5') for p in os.environ['LD_LIBRARY_PATH'].split(':'))"
    )
    monkeypatch.setattr(gpu_check, "steps", lambda folder: [[gpu_check.Step("one", 20, [sys.executable, "-c", code])]])
    assert gpu_check.main(tmp_path / "out", 30) == 0
    monkeypatch.setattr(gpu_check, "NEEDED", {"of_core": "kolumn", "of_nothing": "nothing-cu13"})
    assert gpu_check.main(tmp_path / "out", 30) == 3
    assert "pip install nothing-cu13" in capsys.readouterr().out
