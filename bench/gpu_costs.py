"""What each hot kernel costs, counted by running its PTX: `tests/gpu/test_ptx_budgets.py` holds it, `bench.gpu_model` takes it.

Batches are those of `bench.data`: keys of 11 bytes, values of 100. Counted as `tests/kit/ptx_cost.py` says.
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


RECORD_BYTES = {"16 KiB": 121.5, "16 KiB, few": 121.5, "1 MiB": 122.08}
"""Bytes of a segment for each record: what is counted for a record, divided by these, is for a byte."""

COSTS = {
    "16 KiB": {  # 121.50 bytes a record
        "check": Limits(29.4, 4.11, 1.09, 125, 12.0, 7769, 284),
        "count": Limits(0.0423, 0.0227, 0.0171, 0.724, 0, 76.0, 4.00),
        "hop": Limits(2.17, 4.03, 4.02, 41.7, 0, 9290, 274),
        "fields": Limits(10.3, 11.3, 9.30, 114, 0, 335, 18.0),
        "sizes": Limits(0.632, 0.282, 0.0940, 8.01, 0, 23.0, 1.00),
        "validity": Limits(0.408, 1.01, 1.01, 4.26, 0, 341, 32.0),
        "gather_short": Limits(11.0, 5.61, 4.36, 65.3, 0, 88.0, 7.00),
        "gather": Limits(24.8, 16.5, 8.81, 234, 0, 99.0, 9.00),
    },
    "16 KiB, few": {  # 121.50 bytes a record
        "check": Limits(117, 7.86, 4.84, 127, 12.0, 54245, 2040),
        "join": Limits(0.253, 0.513, 0.509, 2.84, 0, 979, 69.0),
        "count": Limits(0.0423, 0.0227, 0.0171, 0.724, 0, 76.0, 4.00),
        "hop_staged": Limits(16.2, 5.25, 2.43, 130, 1.56, 12951, 504),
        "fields": Limits(10.3, 11.3, 9.30, 114, 0, 335, 18.0),
        "sizes": Limits(0.632, 0.282, 0.0940, 8.01, 0, 23.0, 1.00),
        "validity": Limits(0.408, 1.01, 1.01, 4.26, 0, 341, 32.0),
        "gather_short": Limits(11.0, 5.61, 4.36, 65.3, 0, 88.0, 7.00),
        "gather": Limits(24.8, 16.5, 8.81, 234, 0, 99.0, 9.00),
    },
    "1 MiB": {  # 122.08 bytes a record
        "check": Limits(30.4, 4.02, 1.07, 124, 12.0, 12440, 424),
        "join": Limits(0.127, 0.00816, 0.00816, 0.0485, 0, 979, 69.0),
        "count": Limits(0.0211, 0.000699, 0.000699, 0.0187, 0, 76.0, 4.00),
        "hop_staged": Limits(11.3, 4.79, 1.74, 131, 1.25, 96523, 4116),
        "fields": Limits(10.6, 12.3, 10.4, 113, 0, 366, 20.0),
        "sizes": Limits(0.631, 0.282, 0.0940, 8.01, 0, 23.0, 1.00),
        "validity": Limits(0.369, 1.01, 1.01, 4.26, 0, 341, 32.0),
        "gather_short": Limits(11.1, 5.57, 4.40, 65.1, 0, 88.0, 7.00),
        "gather": Limits(24.8, 16.5, 8.80, 235, 0, 99.0, 9.00),
    },
}
"""By the way of `tests/kit/ptx_decode.py`: bytes of a batch, and whether there are few; and by the kernel."""
