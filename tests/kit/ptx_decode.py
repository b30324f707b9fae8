"""Costs of reading the keys and values of plain batches, as the benches write them, by the PTX of the kernels.

``python -m kit.ptx_decode``, with the root and `tests/` on the path, prints the table of `bench/gpu_costs.py`.
"""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import data
from bench.gpu_costs import Limits

import kolumn
from kit.emulated import Emulated
from kit.ptx import Machine
from kit.ptx_cost import Cost, Costs
from kolumn.kernels import check
from kolumn.kernels.fields import slices
from kolumn.kernels.machine import device


@dataclass(frozen=True)
class Decoded:
    """A read whose launches were counted."""

    bytes: int
    records: int
    launches: list[Cost]


WAYS = {"16 KiB": (16 << 10, 512 << 10, True), "16 KiB, few": (16 << 10, 512 << 10, False), "1 MiB": (1 << 20, 1 << 20, False)}
"""By name: bytes of a batch and of the segment, and whether to take these for as many as keep a device busy. Values have 100 bytes; in
batches of 1 MiB, where the chain of lengths takes longest, they have 60 to 140."""
HOT = ("check", "join", "count", "hop", "hop_staged", "hop_sliced", "fields", "sizes", "validity", "gather_short", "gather")
"""Kernels of a read of keys and values."""


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


def counted(found: Decoded) -> dict[str, Limits]:
    """What the first launch of each hot kernel cost, as `bench.gpu_costs` has it."""
    first = {name: next((one for one in found.launches if one.kernel == name), None) for name in HOT}
    rows = found.records
    return {
        name: Limits(
            one.instructions / rows,
            one.sectors / rows,
            one.lines / rows,
            (one.read + one.written) / rows,
            one.turns / rows,
            one.longest,
            one.waits,
        )
        for name, one in first.items()
        if one is not None
    }


def _rounded(value: float) -> str:
    """Up, to three digits, as text."""
    if value == 0 or value >= 1000:
        return str(math.ceil(value))
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


def main() -> None:
    """Print the table of `bench.gpu_costs` as it is now."""
    for name, way in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = decoded(Path(folder), *way)
        print(f'    "{name}": {{  # {found.bytes / found.records:.2f} bytes a record')
        for kernel, costs in counted(found).items():
            print(f'        "{kernel}": Limits({", ".join(map(_rounded, costs))}),')
        print("    },")


if __name__ == "__main__":
    main()
