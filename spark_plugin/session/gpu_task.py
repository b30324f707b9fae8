"""Which GPU a task uses. Only tasks call this: nothing here runs on the driver, at import, or before a worker is forked."""

import os
from collections.abc import Sequence

from pyspark import TaskContext

SHARE, WORKERS = "KOLUMN_GPU_SHARE", "KOLUMN_GPU_WORKERS"
"""Environment of a worker, set by `rapids.configure`: the fraction of a GPU's memory for all workers together, and their number."""

_used: int | None = None


def use_gpu() -> int:
    """Make the task's GPU the current device of this worker, with a memory pool of the worker's own; done once in a worker's life.

    Returns
    -------
    int
        Number of the device, as CUDA numbers devices in this process.

    Raises
    ------
    MissingError
        The packages of ``kolumn[gpu]`` are not installed, or there is no GPU.
    """
    global _used
    if _used is None:
        from kolumn.kernels.machine.device import count, open_device

        context = TaskContext.get()
        resources = context.resources() if context is not None else {}
        addresses = resources["gpu"].addresses if "gpu" in resources else []
        partition = context.partitionId() if context is not None else 0
        device = choose(addresses, os.environ.get("CUDA_VISIBLE_DEVICES"), partition, count())
        open_device(device, float(os.environ.get(SHARE, "0.3")) / int(os.environ.get(WORKERS, "1")))
        _used = device
    return _used


def choose(addresses: Sequence[str], visible: str | None, partition: int, devices: int) -> int:
    """Number of the device for a task.

    Parameters
    ----------
    addresses : sequence of str
        GPUs that Spark has assigned to the task: numbers on the host.
    visible : str, optional
        CUDA_VISIBLE_DEVICES: if it is set, CUDA numbers only the devices that it lists.
    partition : int
        The task's partition.
    devices : int
        How many devices CUDA sees, at least one.
    """
    listed = [name.strip() for name in visible.split(",")] if visible else []
    if addresses:
        if not listed:
            return int(addresses[0]) % devices
        # A container or YARN's isolation shows the executor's own GPU under another number.
        return listed.index(addresses[0]) if addresses[0] in listed else 0
    return 0 if listed else partition % devices
