"""Both backends return the same rows and raise the same error for damaged segments. Kernels run as loops on the CPU."""

import random
from pathlib import Path
from typing import Any

from kit import redpanda_mutants
from kit.draft_segments import FORMATS, Maker, damage
from kit.emulated import Emulated, HostMemory, run_loops
from kit.fuzz import FIRST, MUTANTS
from kit.mutate import make_segment, mutate
from kit.outcome import COLUMNS, outcome
from kolumn.kernels.machine import device

COUNT = max(150, MUTANTS // 100)


def _mutant(seed: int) -> tuple[bytes, str]:
    """Bytes of a mutant, and their format: of six one is Redpanda's, and two are drafts."""
    rng = random.Random(seed)
    if seed % 6 == 1:
        return redpanda_mutants.make(seed)[1].data, "redpanda"
    if seed % 3:
        return mutate(rng, make_segment(rng)).data, "kafka"
    format = FORMATS[seed // 3 % len(FORMATS)]
    return damage([entry.data for entry in Maker(format, rng).segment(rng.randint(1, 12))], rng)[0], format


def test_mutants(tmp_path: Path) -> None:
    path, differ, failed = tmp_path / "a.log", [], 0
    HostMemory.overrun.clear()
    emulated = Emulated(run_loops)
    with device.using(emulated):
        for seed in range(FIRST, FIRST + COUNT):
            emulated.reads_files = seed % 2 == 1
            data, format = _mutant(seed)
            path.write_bytes(data)
            for how in ({"errors": "raise"}, {"errors": "skip"}, {"errors": "skip", "check_crcs": False}):
                options: dict[str, Any] = {"columns": COLUMNS, "include_control": True, "threads": 1, "format": format, **how}
                one, other = (outcome(path, backend=backend, **options) for backend in ("cpu", "gpu"))
                failed += isinstance(one, str)
                if not (one == other if isinstance(one, str) or isinstance(other, str) else one.equals(other)):
                    differ.append((seed, how))
    assert not differ
    assert not HostMemory.overrun
    assert failed > COUNT // 4
    assert emulated.launched["load"] > COUNT // 40
