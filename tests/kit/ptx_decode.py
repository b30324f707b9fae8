"""Costs of reading the keys and values of plain batches, as the benches write them, by the PTX of the kernels."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import data

import kolumn
from kit.emulated import Emulated
from kit.ptx import Machine
from kit.ptx_cost import Cost, Costs
from kolumn.kernels import decode
from kolumn.kernels.machine import device


@dataclass(frozen=True)
class Decoded:
    """A read whose launches were counted."""

    bytes: int
    batches: int
    records: int
    launches: list[Cost]


def decoded(folder: Path, batch_bytes: int, segment_bytes: int, few: int) -> Decoded:
    """Read a segment with batches of about ``batch_bytes``; with ``few`` batches or more, each gets a thread of `hop`."""
    path = folder / f"{batch_bytes}.log"
    written = list(data.batches("none", segment_bytes, batch_bytes))
    path.write_bytes(b"".join(written))
    costs = Costs()
    with pytest.MonkeyPatch.context() as patch, Machine(after=[costs.add], trace=costs.room).watching() as machine:
        patch.setattr(decode, "FEW", few)
        expected = kolumn.read(path, columns=["key", "value"], backend="cpu")
        with device.using(Emulated(machine.run)):
            assert kolumn.read(path, columns=["key", "value"], threads=1, backend="gpu") == expected
    return Decoded(path.stat().st_size, len(written), len(expected), costs.launches)
