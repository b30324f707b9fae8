"""What a machine with a GPU and no network lacks, made where there is one: python -m bench.gpu_bundle FOLDER KIND ...

The machine is taken to have CUDA 13, and a Python 3.12 with what `PRESENT` names. Of the versions that `pyproject.toml` allows, pip takes
the newest. `bench.gpu_check` unpacks what it finds in ``build/gpu-bundle``:

    core-py312.tar.xz   RMM, nvCOMP, the codecs, and what the tests need
    cudf-py312.tar.xz   libcudf and pylibcudf: for columns that stay on the device
    compiled.tar.xz     kernels and the CPU's loops, as `make kernels loops` left them

Of libraries, the code for other architectures than --arch is zeroed: nvCOMP and libcudf pack to a tenth of their size. With --part-mib an
archive becomes several files of at most that size, ``.01of02`` and so on: what carries them may have a limit.
"""

import argparse
import io
import json
import os
import re
import site
import struct
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = "3.12"
PRESENT = ("numpy", "numba", "llvmlite", "pandas", "pyarrow", "cupy-", "cuda-toolkit", "cuda-pathfinder", "nvidia-")
"""Beginnings of the names of packages that are there; nvCOMP is not."""
OF_CUDF = ("libcudf", "pylibcudf", "libkvikio", "nvtx")
OF_TESTS = ("crc32c", "fastavro", "fsspec", "grpcio-tools", "hypothesis", "kafka-python", "protobuf", "pytest", "python-snappy")
"""Beginnings of the names of requirements, of any extra, that tests and benches on the device import."""
UNUSED = re.compile(r"(^|/)(include|cmake|bin|__pycache__)$|\.(a|pxd|pyx)$")
"""Folders and files of packages that nothing runs."""
GLIBC = (5, 12, 17, 24, 26, 27, 28, 34)
"""Minor versions that wheels are built for; pip takes a wheel only for one that it is given."""
CUDA = Path("/usr/local/cuda")
COMPILED = ("kernels/compiled", "cpu_fallback/compiled")
_FATBIN, _CUBIN = 0xBA55ED50, 2


def resolved() -> dict[str, str]:
    """Name and version of every package that the machine could lack, as pip chooses them for it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tests = {one for some in extras.values() for one in some if one.startswith(OF_TESTS)}
    asked = [*project["dependencies"], *extras["gpu"], *sorted(tests)]
    with tempfile.TemporaryDirectory() as nowhere:
        report = _pip("install", "--dry-run", "--ignore-installed", "--report", "-", "--target", nowhere, *asked)
    found = [one["metadata"] for one in json.loads(report)["install"]]
    return {one["name"].lower(): one["version"] for one in found}


def kind_of(name: str) -> str | None:
    """The archive that a package belongs to; None if it is on the machine."""
    if name.startswith(PRESENT) and not name.startswith("nvidia-libnvcomp"):
        return None
    return "cudf" if name.startswith(OF_CUDF) else "core"


def _pip(*arguments: str) -> str:
    """Run pip for the machine's Python; what it prints."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in GLIBC]
    platforms += ["--platform=manylinux2014_x86_64", "--platform=manylinux1_x86_64"]
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--only-binary=:all:", f"--python-version={PYTHON}", *platforms]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def slim(library: bytearray, keep: int) -> int:
    """Zero code for other architectures in a library, and PTX; headers and places stay. Returns how many bytes of code are kept."""
    kept = 0
    for at, end in _sections(library, {b".nv_fatbin", b"__nv_relfatbin"}):
        while at + 16 <= end:
            magic, _, header, size = struct.unpack_from("<IHHQ", library, at)
            if magic != _FATBIN:
                # Sections have gaps, for the sake of alignment.
                at += 8
                continue
            entry, at = at + header, at + header + size
            while entry < at:
                kind, _, header, size = struct.unpack_from("<HHIQ", library, entry)
                (arch,) = struct.unpack_from("<I", library, entry + 28)
                entry += header
                if (kind, arch) == (_CUBIN, keep):
                    kept += size
                else:
                    library[entry : entry + size] = bytes(size)
                entry += size
    return kept


def _sections(elf: bytearray, names: set[bytes]) -> Iterator[tuple[int, int]]:
    """Begin and end of sections of a 64-bit ELF file, by name."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    width, count, of_names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<I20xQQ", elf, table + width * at) for at in range(count)]
    text = headers[of_names][1]
    for name, begin, size in headers:
        if bytes(elf[text + name : elf.index(0, text + name)]) in names:
            yield begin, begin + size


def slim_all(folder: Path, arch: int) -> None:
    """Cut down every library in a folder that has code for a GPU."""
    for path in folder.rglob("*.so*"):
        data = bytearray(path.read_bytes())
        # Where nothing is kept, a driver makes its code from what is there.
        if b".nv_fatbin\0" in data and slim(data, arch):
            path.write_bytes(data)


def pack(target: Path, root: Path, names: Iterable[str], part_bytes: int = 0) -> None:
    """Write an archive of files and folders of ``root``, in parts if it is larger than one."""
    for old in target.parent.glob(f"{target.name}*"):
        old.unlink()
    with tarfile.open(target, "w:xz") as archive:
        for name in names:
            archive.add(root / name, name, filter=lambda member: None if UNUSED.search(member.name) else member)
    if 0 < part_bytes < target.stat().st_size:
        data = target.read_bytes()
        target.unlink()
        parts = [data[at : at + part_bytes] for at in range(0, len(data), part_bytes)]
        for number, part in enumerate(parts, 1):
            target.with_name(f"{target.name}.{number:02}of{len(parts):02}").write_bytes(part)


def unpack(bundle: Path, packages: Path, tree: Path = ROOT) -> dict[str, str]:
    """Unpack what a folder holds of a bundle: packages into a folder, machine code into the tree. Returns what to set for its users."""
    here = f"py{sys.version_info.major}{sys.version_info.minor}"
    for name, target in (("compiled", tree), (f"core-{here}", packages), (f"cudf-{here}", packages)):
        parts = sorted(bundle.glob(f"{name}.tar.xz*"))
        if parts and (of := re.search(r"of(\d\d)$", parts[0].name)) and len(parts) < int(of[1]):
            # The others may come later, with what carries them next.
            print(f"{name}: {len(parts)} of {int(of[1])} parts are here, it is left out", flush=True)
        elif parts:
            with tarfile.open(fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts))) as archive:
                archive.extractall(target, filter="data")
    if not any(packages.iterdir()):
        return {}
    # The loader does not look on Python's path: libcudf names libcufile, and nvCOMP is not found in a second package `nvidia`.
    folders = {str(one.parent) for at in (packages, *map(Path, site.getsitepackages())) for one in at.glob("nvidia/*/lib*/*.so*")}
    paths = {"PYTHONPATH": [str(packages)], "LD_LIBRARY_PATH": sorted(folders)}
    found = {name: os.pathsep.join(filter(None, [os.environ.get(name), *more])) for name, more in paths.items()}
    return found | ({} if "CUDA_HOME" in os.environ or not CUDA.is_dir() else {"CUDA_HOME": str(CUDA)})


def main(folder: Path, kinds: Iterable[str], arch: int, part_bytes: int) -> None:
    """Make the archives of some kinds, and that of machine code."""
    folder.mkdir(parents=True, exist_ok=True)
    if lacking := [name for name in COMPILED if not (ROOT / name).is_dir()]:
        sys.exit(f"not compiled yet: {', '.join(lacking)}: make kernels loops")
    pack(folder / "compiled.tar.xz", ROOT, COMPILED, part_bytes)
    found = resolved()
    for kind in kinds:
        with tempfile.TemporaryDirectory() as made:
            wanted = [f"{name}=={version}" for name, version in found.items() if kind_of(name) == kind]
            _pip("install", "--no-deps", "--no-compile", "--target", made, *wanted)
            slim_all(Path(made), arch)
            pack(folder / f"{kind}-py{PYTHON.replace('.', '')}.tar.xz", Path(made), sorted(os.listdir(made)), part_bytes)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size / 2**20:6.1f} MiB  {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_bundle", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="+", choices=("core", "cudf"))
    parser.add_argument("--arch", type=int, default=90, help="the card's: 90 for H100 and H200")
    parser.add_argument("--part-mib", type=int, default=0)
    given = parser.parse_args()
    main(given.folder, given.kinds, given.arch, given.part_mib << 20)
