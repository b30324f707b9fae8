"""Runs kernels in Numba's simulator and compares with the CPU: ``NUMBA_ENABLE_CUDASIM=1 python tests/kit/simulate.py``.

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

import numpy as np
import pyarrow as pa
from numba import cuda
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.kernelapi import FakeCUDAModule

import kolumn
from kit.corpus import small_segments
from kit.device_columns import resident, to_arrow
from kit.draft_segments import FORMATS, Maker
from kit.emulated import Emulated, HostMemory, run_loops
from kit.encoder import Record, batch
from kit.mutate import make_segment, mutate
from kit.outcome import COLUMNS, outcome
from kolumn.kernels import check, decode
from kolumn.kernels.fields import hop
from kolumn.kernels.fields.decoded import Payloads
from kolumn.kernels.machine import device, kernel
from kolumn.kernels.machine.kernel import KERNELS, WARP, Kernel
from kolumn.kernels.values.lines import make_lines, mark
from kolumn.kernels.values.schema import Values

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


def columns(path: Path) -> None:
    """Columns that stay on the device, with some rows left out and values parsed: by the simulator as by the loops."""
    csv = [b'1,"a ""b""",true', b"x,,0", b"2", None]
    kolumn.write(pa.table({"value": pa.array(csv, pa.binary())}), path)
    ways: list[dict[str, Any]] = [
        {"columns": COLUMNS, "start_offset": 1},
        {"columns": ["value"], "values": Values.of("csv", {"a": "int8", "b": "string", "c": "bool"})},
        {"columns": ["value"], "values": Values.of("fixed", {"a": ">i4"})},
        {"columns": ["value"], "values": Values.of("avro", {"type": "record", "fields": [{"name": "a", "type": ["null", "bytes"]}]})},
    ]
    for way in ways:
        found = []
        for how in (run, run_loops):
            with device.using(Emulated(how)):
                found.append([to_arrow(column).to_pylist() for table in resident(path, "string", **way) for column in table.columns])
        assert found[0] == found[1], way
    with device.using(Emulated(run)):
        runtime = device.runtime()
        text = runtime.upload(np.frombuffer(b'{"a":1}{}', np.uint8))
        at, length = runtime.upload(text.address + np.array([0, 7], np.int64)), runtime.upload(np.array([7, 2], np.int32))
        made, size = make_lines(runtime, Payloads(at, length, 2))
        assert bytes(runtime.download(made, size)) == mark() + b',"a":1}\n' + mark() + b"}\n"


def main(folder: Path) -> None:
    for module in (kernel, check, hop, decode):
        if hasattr(module, "cuda"):
            module.cuda = _Cuda()
    path = folder / "a.log"
    with device.using(Emulated(run)):
        large_batches(path)
    columns(folder / "columns.log")
    with device.using(Emulated(run)):
        segments = [b"".join(entries) for entries in small_segments(MOST_BYTES)]
        for data in segments:
            path.write_bytes(data)
            compare(path, errors="skip")
        # A thread for each batch, as where there are many.
        few, decode.FEW = decode.FEW, 1
        compare(path)
        decode.FEW = few
        for seed in range(12):
            rng = random.Random(seed)
            path.write_bytes(mutate(rng, make_segment(rng)).data)
            compare(path)
            path.write_bytes(b"".join(entry.data for entry in Maker(FORMATS[seed % 4], rng).segment(2)))
            compare(path, format=FORMATS[seed % 4], errors="skip")
    assert not HostMemory.overrun
    assert set(warps) == set(KERNELS), set(KERNELS) - set(warps)
    print(len(segments), "segments;", ", ".join(f"{name} {count} warps" for name, count in warps.items()))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
