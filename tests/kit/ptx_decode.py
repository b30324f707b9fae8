"""Costs of reading the keys and values of plain batches, as the benches write them, and of typed values, by the PTX of the kernels.

``python -m kit.ptx_decode``, with the root and `tests/` on the path, prints the table of `bench/gpu_costs.py`.
"""

import math
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bench import data, value_data
from bench.gpu_costs import Limits

import kolumn
from kit.emulated import Emulated
from kit.ptx import Machine
from kit.ptx_cost import Cost, Costs
from kolumn.kernels import check
from kolumn.kernels.fields import slices
from kolumn.kernels.fields.records import DevicePayloads
from kolumn.kernels.machine import device
from kolumn.kernels.values.columns import typed_columns
from kolumn.kernels.values.schema import Values
from kolumn.options import Options
from kolumn.readers.types import with_types


@dataclass(frozen=True)
class Decoded:
    """A read whose launches were counted; and of typed values, what the device was asked for."""

    bytes: int
    records: int
    launches: list[Cost]
    asked: Counter[str] = field(default_factory=Counter)


WAYS = {"16 KiB": (16 << 10, 512 << 10, True), "16 KiB, few": (16 << 10, 512 << 10, False), "1 MiB": (1 << 20, 1 << 20, False)}
"""By name: bytes of a batch and of the segment, and whether to take these for as many as keep a device busy. Values have 100 bytes; in
batches of 1 MiB, where the chain of lengths takes longest, they have 60 to 140."""
HOT = ("check", "join", "count", "hop", "hop_staged", "hop_sliced", "fields", "sizes", "validity", "gather_short", "gather")
"""Kernels of a read of keys and values."""
HOT_OF_VALUES = (
    "fronts", "measure_values", "write_values", "measure_messages", "write_messages", "flag_bits", "texts",
)  # fmt: skip
"""Kernels of typed values."""


def decoded(folder: Path, batch_bytes: int, segment_bytes: int, many: bool) -> Decoded:
    """Read a segment with batches of about ``batch_bytes``. If they are ``many``, each gets a thread of `hop`, and one item of `check`."""
    path = folder / f"{batch_bytes}.log"
    if batch_bytes < 1 << 20:
        path.write_bytes(b"".join(data.batches("none", segment_bytes, batch_bytes)))
    else:
        # All in one.
        data.write_any_lengths(path, segment_bytes, 2 * batch_bytes)
    costs = Costs()
    with pytest.MonkeyPatch.context() as patch, Machine(after=[costs.add], trace=costs.room).watching() as machine:
        if many:
            patch.setattr(slices, "FEW", 1)
            patch.setattr(check, "WARPS", 1)
        expected = kolumn.read(path, columns=["key", "value"], backend="cpu")
        with device.using(Emulated(machine.run)):
            assert kolumn.read(path, columns=["key", "value"], threads=1, backend="gpu") == expected
    return Decoded(path.stat().st_size, len(expected), costs.launches)


FLAT = {**value_data.AVRO, "fields": value_data.AVRO["fields"][:5]}
ORDERS = 1024
VALUES: dict[str, dict[str, Any]] = {
    "values: Avro": {"format": "avro", "schema": value_data.AVRO, "schemas": {7: value_data.AVRO}, "framing": "confluent"},
    "values: flat Avro": {"format": "avro", "schema": FLAT, "skip": 0},
    "values: Protobuf": {"format": "protobuf", "schema": value_data.message()[1].SerializeToString(), "message": "bench.Order"},
}
"""By name: options for typed values without ``value_``, in columns. Values are orders of `bench.value_data`, and parts of them."""


def orders(way: str) -> list[bytes]:
    """Values of a way of `VALUES`."""
    rows = value_data.orders(ORDERS)
    if way == "values: Avro":
        return [b"\0\0\0\0\7" + one for one in value_data.as_avro(rows)]
    if way == "values: flat Avro":
        # An order ends with its items, of which there are none: a byte.
        return [one[:-1] for one in value_data.as_avro([row | {"items": []} for row in rows])]
    return value_data.as_protobuf(rows)


def typed(way: str) -> Decoded:
    """Typed values of a column on the device; the schemas that they name are known."""
    given, how = orders(way), VALUES[way]
    costs = Costs()
    with Machine(after=[costs.add], trace=costs.room).watching() as machine, device.using(runtime := Emulated(machine.run)):
        lengths = np.array([len(one) for one in given], np.int32)
        text = runtime.upload(np.frombuffer(b"".join(given), np.uint8))
        payloads = DevicePayloads(runtime.upload(text.address + np.cumsum(lengths) - lengths), runtime.upload(lengths), len(given))
        options: Any = {f"value_{name}": one for name, one in how.items()} | {"value_as": "columns"}
        values = Values.of(with_types(Options.of(**options), [], []).typed[0])
        for _ in range(2):
            costs.launches.clear()
            runtime.asked.clear()
            found = typed_columns(runtime, SimpleNamespace(value=payloads), values, ["value", "valueValid"], "binary")  # type: ignore[arg-type]
        assert found["valueValid"].data.bytes.all()
    return Decoded(int(lengths.sum()), len(given), costs.launches, runtime.asked)


def found_by(way: str, folder: Path) -> Decoded:
    """A read of `WAYS`, which writes into a folder, or values of `VALUES`."""
    return decoded(folder, *WAYS[way]) if way in WAYS else typed(way)


def counted(way: str, found: Decoded) -> dict[str, Limits]:
    """What the first launch of each hot kernel cost, as `bench.gpu_costs` has it."""
    hot = HOT if way in WAYS else HOT_OF_VALUES
    first = {one.kernel: one for one in reversed(found.launches) if one.kernel in hot}
    rows = found.records
    return {
        name: Limits(
            one.instructions / rows,
            one.sectors / rows,
            one.lines / rows,
            (one.read + one.written) / rows,
            one.turns / rows,
            one.longest,
            one.waits if way in WAYS else one.fresh,
        )
        for name, one in reversed(first.items())
    }


def _rounded(value: float) -> str:
    """Up, to three digits, as text."""
    if value == 0 or value >= 1000:
        return str(math.ceil(value))
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


def main() -> None:
    """Print the table of `bench.gpu_costs` as it is now."""
    for name in (*WAYS, *VALUES):
        with tempfile.TemporaryDirectory() as folder:
            found = found_by(name, Path(folder))
        print(f'    "{name}": {{  # {found.bytes / found.records:.2f} bytes a record')
        for kernel, costs in counted(name, found).items():
            print(f'        "{kernel}": Limits({", ".join(map(_rounded, costs))}),')
        print("    },")


if __name__ == "__main__":
    main()
