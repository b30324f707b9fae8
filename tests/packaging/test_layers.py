"""The layers of the package: a folder imports only from folders of lower layers, by any kind of import."""

from pathlib import Path

from kit.source_tree import arrows, circles, modules, room

LAYERS = (
    ("core", "cpu_fallback", "kernels"),
    ("formats", "values.schemas"),
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
    ("broker", "spark_plugin.connector", "spark_plugin.write", "tools.report"),
    ("cli", "kolumn", "spark_plugin"),
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
    assert circles(ARROWS) == []


def test_circles_are_found() -> None:
    a, b, c, d = (Path(f"{name}.py") for name in "abcd")
    assert circles({a: {b}, b: {c}, c: {b, d}, d: set()}) == [b, c]
    assert circles({a: {b, c}, b: {c}, c: {d}, d: set()}) == []


def test_public_names_come_from_below() -> None:
    import kolumn

    assert set(kolumn._LAZY) <= set(kolumn.__all__)
    assert {Path(*name.split(".")[1:]).with_suffix(".py") for name in kolumn._LAZY.values()} <= set(modules())
