"""The layers of the package: a folder imports only from folders of lower layers, by any kind of import."""

from graphlib import TopologicalSorter
from pathlib import Path

from kit.source_tree import arrows, modules, room

LAYERS = (
    ("core", "cpu_fallback", "kernels"),
    ("formats", "source.identity", "values.schemas.schema"),
    ("formats.machine_code", "source.storage", "values.decoder", "values.internal"),
    ("cpu_fallback.machine", "formats.codecs", "source.names", "source.read_ahead", "values.wire"),
    ("cpu_fallback.build", "cpu_fallback.check", "cpu_fallback.count", "cpu_fallback.encode", "cpu_fallback.fields", "cpu_fallback.inflate",
     "cpu_fallback.values", "kernels.machine", "source.side_files", "values.memory"),
    ("backend", "cpu_fallback.columns", "cpu_fallback.stream", "kernels.check", "kernels.fields", "source.tiers", "values.avro",
     "values.protobuf"),
    ("cpu_fallback.stream_files", "cpu_fallback.stream_messages", "kernels.columns", "kernels.decode", "kernels.frame", "source", "values"),
    ("copies.elections", "damage.findings", "kernels.values", "log.chunks", "options", "writers.commit"),
    ("decode.host.run", "kernels.build", "log.aborted", "log.seek", "spark_plugin.session", "writers"),
    ("decode.host", "log.headers", "spark_plugin.rapids"),
    ("damage.intact", "decode.device", "decode.observed"),
    ("damage",),
    ("decode",),
    ("log",),
    ("copies",),
    ("spark_plugin.options", "values.schemas"),
    ("readers",),
    ("spark_plugin.read", "writers.conversion"),
    ("broker", "spark_plugin.stream", "tools", "writers.compaction"),
    ("kolumn", "spark_plugin.connector", "spark_plugin.write", "tools.report"),
    ("cli", "spark_plugin.source"),
    ("spark_plugin",),
)  # fmt: skip
"""Layers from the bottom up: folders, and modules of folders that span several layers. Those of one layer do not import each other."""
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
ARROWS = arrows()
# The command line calls public functions, as any program does.
FRONT_DOOR = {("cli", "kolumn")}


def place(module: Path) -> str:
    """The folder of a module, or the module itself where the layers name it."""
    name = ".".join(module.with_suffix("").parts)
    return name if name in LAYER else room(module)


def test_every_room_has_a_layer() -> None:
    assert {place(module) for module in modules()} == set(LAYER)


def test_arrows_point_down() -> None:
    others = [(str(module), place(module), place(other)) for module in modules() for other in sorted(ARROWS[module])]
    outside = [one for one in others if one[1] != one[2] and one[1:] not in FRONT_DOOR]
    assert [one for one in outside if LAYER[one[2]] >= LAYER[one[1]]] == []


def test_no_circles() -> None:
    """There are no circles through imports inside functions either, which hide a circle from Python."""
    TopologicalSorter(ARROWS).prepare()


def test_public_names_come_from_below() -> None:
    import kolumn

    assert set(kolumn._LAZY) <= set(kolumn.__all__)
    assert {Path(*name.split(".")[1:]).with_suffix(".py") for name in kolumn._LAZY.values()} <= set(modules())
