"""Runs kernels in Numba's simulator and compares with the CPU: ``NUMBA_ENABLE_CUDASIM=1 python tests/kit/simulate.py [all]``.

The simulator has a Python thread for each of a block's, and nothing that the lanes of a warp tell each other by. That is added here,
by way of a barrier of the block: all lanes of a warp take part, as they do in our kernels.
"""

import random
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from numba import cuda
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.kernelapi import FakeCUDAModule

from kit.corpus import small_segments
from kit.draft_segments import FORMATS, Maker
from kit.emulated import Emulated, HostMemory
from kit.encoder import Record, batch
from kit.mutate import make_segment, mutate
from kit.outcome import COLUMNS, outcome
from kolumn.kernels import check, decode, device, hop, kernel
from kolumn.kernels.kernel import WARP, Kernel

BLOCK = 2 * WARP
MOST_BYTES = 2000
"""Of a segment of the corpus: the simulator does some thousand records a second."""


def _exchange(value: Any) -> tuple[int, dict[int, Any]]:
    """This thread's number, and what the lanes of its warp gave."""
    thread: Any = threading.current_thread()
    number = thread.threadIdx.x
    board = thread._manager.__dict__.setdefault("_board", {})
    board[number] = value
    thread.syncthreads()
    own = {other: given for other, given in board.items() if other // WARP == number // WARP}
    thread.syncthreads()
    return number, own


def _shuffle_xor(mask: int, value: Any, distance: int) -> Any:
    number, own = _exchange(value)
    return own[number ^ distance]


def _shuffle(mask: int, value: Any, lane: int) -> Any:
    number, own = _exchange(value)
    return own[number // WARP * WARP + lane]


FakeCUDAModule.shfl_xor_sync = staticmethod(_shuffle_xor)
FakeCUDAModule.shfl_sync = staticmethod(_shuffle)
FakeCUDAModule.syncwarp = staticmethod(lambda mask=0xFFFFFFFF: threading.current_thread().syncthreads())


class _Cuda:
    """``numba.cuda`` as seen by the modules of kernels: whatever the running kernel's context has."""

    def __getattr__(self, name: str) -> Any:
        return getattr(simulator._get_kernel_context() or cuda, name)


def run(one: Kernel, n: int, args: Any) -> None:
    """Run a kernel in the simulator."""
    blocks = -(-n * (one.lanes or WARP) // BLOCK)
    warps[one.name] += blocks * 2
    # Fewer blocks than items, so that kernels with a loop over items go around.
    cuda.jit(one.shell())[min(blocks, 1) if not one.lanes else blocks, BLOCK](n, args)


warps: Counter[str] = Counter()


def compare(path: Path, **options: Any) -> None:
    """Read with both backends."""
    one, two = (outcome(path, columns=COLUMNS, include_control=True, threads=1, backend=name, **options) for name in ("cpu", "gpu"))
    assert one == two if isinstance(one, str) or isinstance(two, str) else one.equals(two), (path, options)


def large_batches(path: Path) -> None:
    """Batches that don't fit a window, with records that don't either."""
    rng = random.Random(1)
    sizes = [0, 5, 9000, *(rng.choice([0, 5, 90, 4096]) for _ in range(12))]
    records = [Record(i, b"k%d" % i, rng.randbytes(size), 1000 + i) for i, size in enumerate(sizes)]
    path.write_bytes(batch(records[:9]) + batch(records[9:]))
    compare(path)
    data = bytearray(path.read_bytes())
    data[-9000] ^= 0xFF
    path.write_bytes(data)
    compare(path, errors="skip", check_crcs=False)


def main(folder: Path, every: bool) -> None:
    for module in (kernel, check, hop, decode):
        if hasattr(module, "cuda"):
            module.cuda = _Cuda()
    path = folder / "a.log"
    with device.using(Emulated(run)):
        large_batches(path)
        segments = [b"".join(entries) for entries in small_segments(MOST_BYTES)][:: 1 if every else 8]
        for data in segments:
            path.write_bytes(data)
            compare(path, errors="skip")
        for seed in range(12 if every else 4):
            rng = random.Random(seed)
            path.write_bytes(mutate(rng, make_segment(rng)).data)
            compare(path)
            path.write_bytes(b"".join(entry.data for entry in Maker(FORMATS[seed % 4], rng).segment(2)))
            compare(path, format=FORMATS[seed % 4], errors="skip")
    assert not HostMemory.overrun
    print(len(segments), "segments;", ", ".join(f"{name} {count} warps" for name, count in warps.items()))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder), sys.argv[1:] == ["all"])
