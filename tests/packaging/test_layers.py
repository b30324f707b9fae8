"""The layers of the house: a room imports from rooms of lower layers only, whatever kind of import it is."""

from pathlib import Path

import pytest

from kit.source_tree import arrows, circles, modules, room

LAYERS = (
    # What everything may use.
    ("errors", "arrays"),
    ("arrow",),
    ("formats", "schema"),
    ("codecs", "machine_code", "keywords"),
    ("kernels", "cpu_fallback", "kernels.machine", "cpu_fallback.machine"),
    # The stages, on the CPU and on a GPU: check, inflate, count, fields, columns. Below them: bytes by name and range.
    ("source", "backend", "cpu_fallback.check", "cpu_fallback.inflate", "cpu_fallback.count", "cpu_fallback.fields", "cpu_fallback.encode"),
    ("kernels.check", "kernels.count", "kernels.fields", "cpu_fallback.columns", "cpu_fallback.stream"),
    ("kernels.columns", "kernels.decode", "options", "damage", "commit"),
    ("kernels.values", "plan", "transactions", "encode"),
    # A chunk, the way on after damage, a range.
    ("kernels.build", "decode.host"),
    ("decode.device", "entries"),
    ("recovery",),
    ("decode",),
    # What is made of ranges.
    ("log", "verification", "parquet"),
    ("replicas",),
    ("api",),
    ("gpu_api", "conversion"),
    ("accounting", "compaction"),
    # Spark, the command line, and the front door.
    ("spark_plugin.session", "spark_plugin.options"),
    ("spark_plugin.read", "spark_plugin.rapids"),
    ("spark_plugin.stream", "spark_plugin.write", "spark_plugin.parquet_export"),
    ("spark_plugin.source",),
    ("spark_plugin",),
    ("cli", "kolumn"),
)
"""From the bottom up. Rooms of one layer do not know each other."""
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
ARROWS = arrows()
# The command line calls what is public, as any program does.
FRONT_DOOR = {("cli", "kolumn")}


def test_every_room_has_a_layer() -> None:
    assert {room(module) for module in modules()} == set(LAYER)


@pytest.mark.parametrize("module", modules(), ids=str)
def test_arrows_point_down(module: Path) -> None:
    own = room(module)
    others = {(own, room(other)) for other in ARROWS[module]} - FRONT_DOOR
    assert [other for _, other in sorted(others) if other != own and LAYER[other] >= LAYER[own]] == []


def test_no_circles() -> None:
    """Not even through imports inside of functions, which hide one from Python."""
    assert circles(ARROWS) == []


def test_circles_are_found() -> None:
    a, b, c, d = (Path(f"{name}.py") for name in "abcd")
    assert circles({a: {b}, b: {c}, c: {b, d}, d: set()}) == [b, c]
    assert circles({a: {b, c}, b: {c}, c: {d}, d: set()}) == []


def test_public_names_come_from_below() -> None:
    import kolumn

    assert set(kolumn._LAZY) <= set(kolumn.__all__)
    targets = {Path(*name.split(".")[1:]).with_suffix(".py") for name in kolumn._LAZY.values()}
    assert targets <= set(modules())
