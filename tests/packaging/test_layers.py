"""The layers of the package: a folder imports only from folders of lower layers, by any kind of import."""

import re
from pathlib import Path

from kit.source_tree import arrows, circles, modules, room

LAYERS = (
    # Modules that all others may import.
    ("errors", "arrays"),
    ("arrow", "paths", "threads"),
    ("formats", "schema"),
    ("machine_code", "keywords"),
    ("codecs",),
    ("kernels", "cpu_fallback", "kernels.machine", "cpu_fallback.machine", "encodings", "schemas"),
    # The stages on the CPU and on a GPU (check, inflate, count, fields, columns), and `source`, which reads bytes by name and range.
    (
        "source",
        "backend",
        "cpu_fallback.check",
        "cpu_fallback.inflate",
        "cpu_fallback.count",
        "cpu_fallback.fields",
        "cpu_fallback.encode",
        "cpu_fallback.values",
    ),
    ("kernels.check", "kernels.count", "kernels.fields", "cpu_fallback.columns", "cpu_fallback.stream", "values"),
    (
        "cpu_fallback.stream_messages",
        "cpu_fallback.stream_files",
        "cpu_fallback.build",
        "values.text",
        "values.avro",
        "values.protobuf",
        "values.internal",
    ),
    ("values.columns",),
    ("kernels.columns", "kernels.decode", "kernels.frame", "options", "damage", "commit"),
    ("kernels.values", "plan", "transactions", "encode"),
    # Chunks, the search after damage, and ranges.
    ("kernels.build", "decode.host"),
    ("decode.device", "entries"),
    ("resync",),
    ("decode",),
    # Operations on ranges.
    ("log", "parquet"),
    ("replicas", "index_files"),
    # Reads a topic, as `api` does.
    ("registry", "internal_topics", "verification"),
    ("reader_types",),
    ("api",),
    ("gpu_api", "conversion", "frames"),
    ("accounting", "compaction", "salvage"),
    ("report",),
    # Spark, the command line, and the public functions.
    ("spark_plugin.session", "spark_plugin.options"),
    ("spark_plugin.read", "spark_plugin.rapids"),
    ("spark_plugin.stream", "spark_plugin.write", "spark_plugin.parquet_export", "spark_plugin.jvm"),
    ("spark_plugin.source", "spark_plugin.connector"),
    ("spark_plugin",),
    ("cli", "kolumn"),
)
"""Layers from the bottom up. Folders of one layer do not import each other."""
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
    assert circles(ARROWS) == []


def test_circles_are_found() -> None:
    a, b, c, d = (Path(f"{name}.py") for name in "abcd")
    assert circles({a: {b}, b: {c}, c: {b, d}, d: set()}) == [b, c]
    assert circles({a: {b, c}, b: {c}, c: {d}, d: set()}) == []


def test_design_lists_folders_from_the_highest_layer_down() -> None:
    design = Path(__file__).resolve().parents[2] / "DESIGN.md"
    text = design.read_text().split("### What each folder is for")[1].split("\n\n`kernels/`")[0]
    folders = [name.removeprefix("src/kolumn/") for name in re.findall(r"^\| `([\w/]+)/` ", text, re.MULTILINE)]
    rooms = [name.replace("/", ".") for name in folders if name != "src/kolumn"]
    heights = [max(height for name, height in LAYER.items() if f"{name}.".startswith(f"{room}.")) for room in rooms]
    assert len(rooms) > 30
    assert heights == sorted(heights, reverse=True)


def test_public_names_come_from_below() -> None:
    import kolumn

    assert set(kolumn._LAZY) <= set(kolumn.__all__)
    targets = {Path(*name.split(".")[1:]).with_suffix(".py") for name in kolumn._LAZY.values()}
    assert targets <= set(modules())
