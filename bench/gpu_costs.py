"""What each hot kernel costs, counted by running its PTX: `tests/gpu/test_ptx_budgets.py` holds it, `bench.gpu_model` takes it.

Keys have 11 bytes, values 100, as in `bench.data`; in batches of 1 MiB 60 to 140. Counted as `tests/kit/ptx_cost.py` says.
"""

from typing import NamedTuple


class Limits(NamedTuple):
    """Of one launch.

    Attributes
    ----------
    instructions : float
        PTX instructions that warps issue, for each record.
    sectors, lines : float
        Parts of memory of 32 and of 128 bytes that requests touch, for each record.
    bytes : float
        Of the sectors that a launch reads and writes, each counted once, for each record.
    turns : float
        Of shared memory, for each record.
    longest : int
        Instructions of the warp that has most.
    waits : int
        Loads from memory of the warp that has most.
    """

    instructions: float
    sectors: float
    lines: float
    bytes: float
    turns: float
    longest: int
    waits: int


RECORD_BYTES = {"16 KiB": 121.5, "16 KiB, few": 121.5, "1 MiB": 121.05}
"""Bytes of a segment for each record: what is counted for a record, divided by these, is for a byte."""

COSTS = {
    "16 KiB": {  # 121.50 bytes a record
        "check": Limits(29.7, 4.11, 1.09, 125, 12.0, 7855, 284),
        "count": Limits(0.0423, 0.0227, 0.0171, 0.724, 0, 76.0, 4.00),
        "hop": Limits(2.17, 4.03, 4.02, 41.7, 0, 9290, 274),
        "fields": Limits(10.3, 11.3, 9.30, 114, 0, 335, 18.0),
        "sizes": Limits(0.632, 0.282, 0.0940, 8.01, 0, 23.0, 1.00),
        "validity": Limits(0.408, 1.01, 1.01, 4.26, 0, 341, 32.0),
        "gather_short": Limits(11.2, 5.61, 4.36, 65.3, 0, 89.0, 7.00),
        "gather": Limits(25.8, 16.5, 8.81, 234, 0, 103, 9.00),
    },
    "16 KiB, few": {  # 121.50 bytes a record
        "check": Limits(117, 7.86, 4.84, 127, 12.0, 54718, 2040),
        "join": Limits(0.253, 0.513, 0.509, 2.84, 0, 979, 69.0),
        "count": Limits(0.0423, 0.0227, 0.0171, 0.724, 0, 76.0, 4.00),
        "hop_staged": Limits(17.3, 4.77, 1.87, 130, 1.53, 13899, 504),
        "fields": Limits(10.3, 11.3, 9.30, 114, 0, 335, 18.0),
        "sizes": Limits(0.632, 0.282, 0.0940, 8.01, 0, 23.0, 1.00),
        "validity": Limits(0.408, 1.01, 1.01, 4.26, 0, 341, 32.0),
        "gather_short": Limits(11.2, 5.61, 4.36, 65.3, 0, 89.0, 7.00),
        "gather": Limits(25.8, 16.5, 8.81, 234, 0, 103, 9.00),
    },
    "1 MiB": {  # 121.05 bytes a record
        "check": Limits(32.3, 3.99, 1.07, 123, 11.9, 13462, 433),
        "join": Limits(0.128, 0.00822, 0.00822, 0.0488, 0, 979, 69.0),
        "count": Limits(0.0213, 0.000704, 0.000704, 0.0188, 0, 76.0, 4.00),
        "hop_sliced": Limits(79.1, 10.1, 4.11, 130, 6.67, 42589, 574),
        "fields": Limits(10.1, 11.2, 8.73, 113, 0, 336, 18.0),
        "sizes": Limits(0.634, 0.282, 0.0940, 8.01, 0, 23.0, 1.00),
        "validity": Limits(0.372, 1.01, 1.01, 4.26, 0, 341, 32.0),
        "gather_short": Limits(11.2, 5.62, 4.23, 65.4, 0, 89.0, 7.00),
        "gather": Limits(26.1, 17.3, 9.64, 234, 0, 116, 11.0),
    },
}
"""By the way of `tests/kit/ptx_decode.py`: bytes of a batch, and whether there are few; and by the kernel."""
