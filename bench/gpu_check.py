"""Everything that only a machine with a GPU can tell, in one command: python -m bench.gpu_check [FOLDER]

Runs the tests for a GPU, the bench, and compute-sanitizer over one small read where it is installed. FOLDER (build/gpu-check) gets
tests.xml, gpu_decode.json, the output of each step, and summary.json: how each step ended, and what the machine has and lacks.
Exit code: 0 if no step failed, 1 if one did, 3 if nothing could be run.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SEGMENT = ROOT / "tests" / "data" / "corpus" / "v2-java" / "java-zstd-0"
NEEDED = {
    "numpy": "numpy", "numba": "numba", "pyarrow": "pyarrow", "cramjam": "cramjam", "zstandard": "zstandard", "isal": "isal",
    "lz4": "lz4", "cupy": "cupy-cuda13x", "rmm": "rmm-cu13", "pytest": "pytest",
}  # fmt: skip
"""Modules without which nothing runs, and the packages that they come in."""
WANTED = {
    "pylibcudf": "pylibcudf-cu13", "nvidia.libnvcomp": "nvidia-libnvcomp-cu13", "crc32c": "crc32c", "kvikio": "kvikio-cu13",
    "cudf": "cudf-cu13",
}  # fmt: skip
"""Modules without which some of it is skipped."""
READ = (
    "import kolumn; one, other = (kolumn.read({path!r}, backend=backend) for backend in ('gpu', 'cpu')); "
    "assert one.equals(other) and one.num_rows; print(one.num_rows, 'records, the same on both backends')"
)
TOOLS = ("memcheck", "racecheck")
PYTEST = (
    "-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=default", "-p", "no:cacheprovider", "--continue-on-collection-errors",
)  # fmt: skip
"""The project's own options need plugins that a bare machine may lack. There neither a file of tests whose packages are missing nor a
warning of a newer NumPy is a reason to test nothing."""


def missing(packages: dict[str, str]) -> list[str]:
    """Packages whose modules are not there."""
    return [package for module, package in packages.items() if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def steps(folder: Path) -> dict[str, Sequence[str] | str]:
    """Commands by name; for one that can't run here the reason."""
    python = sys.executable
    found: dict[str, Sequence[str] | str] = {
        "tests": [python, "-m", "pytest", "-ra", "-m", "gpu", *PYTEST, f"--junitxml={folder / 'tests.xml'}", str(ROOT / "tests" / "gpu")],
        "bench": [python, "-m", "bench.gpu_decode", str(folder)]
        if _is_there("crc32c")
        else "no crc32c, which the segments are written with",
    }
    sanitizer = shutil.which("compute-sanitizer")
    for tool in TOOLS:
        # CuPy's and RMM's pools hide single allocations from memcheck, but not accesses outside of all of them.
        read = [python, "-c", READ.format(path=str(SEGMENT))]
        found[tool] = [sanitizer, "--tool", tool, "--error-exitcode", "9", *read] if sanitizer else "compute-sanitizer is not installed"
    return found


def run(name: str, command: Sequence[str], folder: Path) -> int:
    """Run a step; what it prints goes to the screen and to a file."""
    paths = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    how: dict[str, Any] = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with (folder / f"{name}.log").open("w") as log, subprocess.Popen(command, **how) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            log.write(line)
    return process.returncode


def main(folder: Path) -> int:
    """Run all steps and write the summary."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    smi = shutil.which("nvidia-smi")
    gpus = subprocess.run([smi, "-L"], capture_output=True, text=True, check=False).stdout.splitlines() if smi else []
    lacking = missing(NEEDED)
    summary: dict[str, Any] = {"gpus": gpus, "missing": lacking, "missing, some steps are skipped": missing(WANTED), "steps": {}}
    if gpus and not lacking:
        for name, command in steps(folder).items():
            skipped = isinstance(command, str)
            print(f"== {name}: {f'skipped, {command}' if skipped else ' '.join(command)}", flush=True)
            ended = command if isinstance(command, str) else run(name, command, folder)
            summary["steps"][name] = f"skipped: {ended}" if skipped else ended
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    if not gpus:
        print("no GPU here (nvidia-smi lists none): nothing was run")
        return 3
    if lacking:
        print(f"nothing was run without these packages: pip install {' '.join(lacking)}")
        return 3
    failed = [name for name, ended in summary["steps"].items() if ended not in (0,) and not isinstance(ended, str)]
    print(f"{'failed: ' + ', '.join(failed) if failed else 'all is well'}; files are in {folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "gpu-check"))
