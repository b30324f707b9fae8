"""`pip install` installs every module of the tree, including the linked folders, and nothing else."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from kit.source_tree import LINKED, modules

ROOT = Path(__file__).resolve().parents[2]
BUILT = ("kernels/compiled/0123456789abcdef/sizes.sm_90.cubin", "cpu_fallback/compiled/x86-64-v3-0123456789abcdef/stream.hop.code")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the tree, because files of an older build folder would be added to the wheel."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("src", *LINKED):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "compiled"))
    # `make kernels` and `make loops` leave such files.
    for file in BUILT:
        (copy / file).parent.mkdir(parents=True)
        (copy / file).write_bytes(b"code")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "out"), str(copy)]
    built = subprocess.run(command, env={**os.environ, "KOLUMN_BUILD_LOOPS": "0"}, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (copy / "out").glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_tree_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    others = {"py.typed", "tools/report/style.css", "spark_plugin/discover_gpus.sh", "spark_plugin/jars/kolumn-spark.jar"}
    others |= set(BUILT)
    others |= {str(path.relative_to(ROOT / "src" / "kolumn")) for path in (ROOT / "src").rglob("definitions/*/*.json")}
    expected = {f"kolumn/{path}" for path in modules()} | {"pyspark_kolumn.py"} | {f"kolumn/{name}" for name in others}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert "kolumn = kolumn.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()


def test_linked_folders_are_links() -> None:
    for name in LINKED:
        link = ROOT / "src" / "kolumn" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name


def test_loops_are_compiled_with_what_they_run_with() -> None:
    """`setup.py` compiles loops in an environment of its own, whose packages have the same ranges."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = set(project["build-system"]["requires"]) - {"setuptools>=77"}
    assert build < set(project["project"]["dependencies"])
    assert {name.partition(">")[0] for name in build} >= {"numba", "numpy"}
