"""Which GPU a task uses. Only tasks call this: nothing here runs on the driver, at import, or before a worker is forked."""

import os
from collections.abc import Sequence

from pyspark import TaskContext

from kolumn.core.errors import ArgumentError
from kolumn.core.recycle import share_locked

SHARE, WORKERS, JVM_SHARE = "KOLUMN_GPU_SHARE", "KOLUMN_GPU_WORKERS", "KOLUMN_GPU_JVM_SHARE"
"""Environment, set by `rapids.configure`: the part of a GPU's memory for all workers together, their number, and the part of the JVM."""
CONTEXT_BYTES = 384 << 20
"""Kept free for each process on a GPU: its CUDA context and the code of libraries, which no pool counts. An estimate, not measured."""

_used: int | None = None
_assigned: tuple[Sequence[str], int] | None = None


def assign(addresses: Sequence[str], partition: int) -> None:
    """Say which GPUs and which partition the next task has, in a worker that is not Spark's own."""
    global _assigned
    _assigned = addresses, partition


def use_gpu() -> int:
    """Make the task's GPU the current device of this worker, with a memory pool of the worker's own; done once in a worker's life.

    A pool that RMM has in this worker by then stays: what is Kolumn's comes from it, and the shares of `rapids.configure` don't bound it.
    Returns the number of the device in this process. Raises `MissingError` without the packages of the extra ``gpu`` or without a GPU, and
    `ArgumentError` as `check_shares`, or if the session gives Python workers nothing.
    """
    global _used
    if _used is None:
        python, workers = float(os.environ.get(SHARE, "0.3")), int(os.environ.get(WORKERS, "1"))
        if not python:
            raise ArgumentError(
                "backend='gpu' in a Python worker, and this session gives workers no memory of the GPU: leave backend out, so that the "
                'accelerator decodes format("kolumn") in the executor, or start it with rapids.configure(builder, python_share=0.3)'
            )
        from kolumn.kernels.machine.device import count, memory_of, open_device

        addresses, partition = _assigned or _of_context()
        device = choose(addresses, os.environ.get("CUDA_VISIBLE_DEVICES"), partition, count())
        check_shares(memory_of(device), float(os.environ.get(JVM_SHARE, "0")), python, workers)
        open_device(device, python / workers)
        share_locked(workers)
        _used = device
    return _used


def _of_context() -> tuple[Sequence[str], int]:
    context = TaskContext.get()
    if context is None:
        return [], 0
    resources = context.resources()
    return resources["gpu"].addresses if "gpu" in resources else [], context.partitionId()


def check_shares(total: int, jvm: float, python: float, workers: int) -> None:
    """Add up what is taken of a GPU: the JVM's pool, those of the workers, and a context for each of these processes.

    ``jvm`` and ``python`` are parts of the GPU's ``total`` bytes, the latter for all ``workers`` together, if there are any. Raises
    `ArgumentError` if it is more than there is.
    """
    pools, contexts = int(jvm * total) + workers * int(python / max(1, workers) * total), (1 + workers) * CONTEXT_BYTES
    if pools + contexts > total:
        raise ArgumentError(
            f"a GPU of {total / 2**30:.1f} GiB: {jvm:.0%} for the JVM, {python:.0%} for {workers} Python workers and "
            f"{contexts / 2**30:.1f} GiB for the contexts of all of them are {(pools + contexts) / 2**30:.1f} GiB: "
            "give rapids.configure fewer cores, or smaller shares"
        )


def choose(addresses: Sequence[str], visible: str | None, partition: int, devices: int) -> int:
    """Number of the device for a task with this partition.

    Spark may have assigned GPUs to it (``addresses``, numbers on the host). If CUDA_VISIBLE_DEVICES (``visible``) is set, CUDA numbers
    only the devices that it lists. CUDA sees at least one of ``devices``.
    """
    listed = [name.strip() for name in visible.split(",")] if visible else []
    if addresses:
        if not listed:
            return int(addresses[0]) % devices
        # A container or YARN's isolation shows the executor's own GPU under another number.
        return listed.index(addresses[0]) if addresses[0] in listed else 0
    return 0 if listed else partition % devices
