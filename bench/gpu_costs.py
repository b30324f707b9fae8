"""What each hot kernel costs, counted by running its PTX: `tests/gpu/test_ptx_budgets.py` holds it, `bench.gpu_model` takes it.

Keys have 11 bytes, values 100, as in `bench.data`; in batches of 1 MiB 60 to 140. Typed values are the orders of `bench.value_data`, and
parts of them. Counted as `tests/kit/ptx_decode.py` says.
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
        Loads from memory of the warp that has most. Of typed values those alone that touch a line for the first time: others find the
        tables of the program, and the bytes next to those before, in the first-level cache.
    """

    instructions: float
    sectors: float
    lines: float
    bytes: float
    turns: float
    longest: float
    waits: float


RECORD_BYTES = {
    "16 KiB": 121.5, "16 KiB, few": 121.5, "1 MiB": 121.05,
    "values: Avro": 49.033, "values: flat Avro": 37.393, "values: Protobuf": 49.87,
}  # fmt: skip
"""Bytes of a segment, or of values, for each record: what is counted for a record, divided by these, is for a byte."""

COSTS = {
    "16 KiB": {  # 121.50 bytes a record
        "check": Limits(29.9, 4.12, 1.09, 125, 12.0, 7949, 286),
        "hop": Limits(2.14, 4.03, 4.02, 41.7, 0, 9157, 274),
        "fields": Limits(10.1, 11.2, 9.30, 114, 0, 331, 19.0),
        "sizes": Limits(0.630, 0.282, 0.0940, 8.01, 0, 21.0, 1.00),
        "validity": Limits(0.432, 1.01, 1.01, 4.26, 0, 364, 32.0),
        "gather_short": Limits(8.00, 5.61, 4.36, 65.3, 0, 64.0, 7.00),
        "gather": Limits(19.5, 16.5, 8.81, 234, 0, 78.0, 9.00),
    },
    "16 KiB, few": {  # 121.50 bytes a record
        "check": Limits(84.7, 7.87, 4.85, 127, 12.0, 49344, 2051),
        "join": Limits(0.162, 0.513, 0.509, 2.84, 0, 621, 69.0),
        "hop_staged": Limits(14.4, 4.74, 1.83, 130, 1.53, 11501, 468),
        "fields": Limits(10.1, 11.2, 9.30, 114, 0, 331, 19.0),
        "sizes": Limits(0.630, 0.282, 0.0940, 8.01, 0, 21.0, 1.00),
        "validity": Limits(0.432, 1.01, 1.01, 4.26, 0, 364, 32.0),
        "gather_short": Limits(8.00, 5.61, 4.36, 65.3, 0, 64.0, 7.00),
        "gather": Limits(19.5, 16.5, 8.81, 234, 0, 78.0, 9.00),
    },
    "1 MiB": {  # 121.05 bytes a record
        "check": Limits(33.1, 4.00, 1.07, 123, 11.9, 13888, 436),
        "join": Limits(0.0811, 0.00822, 0.00822, 0.0488, 0, 621, 69.0),
        "hop_sliced": Limits(74.8, 10.1, 4.11, 130, 6.67, 40322, 574),
        "fields": Limits(9.90, 11.1, 8.73, 113, 0, 332, 19.0),
        "sizes": Limits(0.633, 0.282, 0.0940, 8.01, 0, 21.0, 1.00),
        "validity": Limits(0.393, 1.01, 1.01, 4.26, 0, 368, 32.0),
        "gather_short": Limits(8.02, 5.62, 4.23, 65.4, 0, 64.0, 7.00),
        "gather": Limits(19.8, 17.3, 9.64, 234, 0, 89.0, 11.0),
    },
    "values: Avro": {  # 49.03 bytes a record
        "fronts": Limits(5.26, 6.69, 2.58, 85.3, 0, 169, 7.00),
        "measure_values": Limits(37.0, 30.0, 12.1, 213, 1.92, 1194, 18.0),
        "flag_bits": Limits(0.838, 2.03, 0.514, 2.82, 0, 424, 2.00),
        "texts": Limits(21.3, 13.2, 7.76, 119, 0, 172, 14.0),
        "write_values": Limits(19.7, 16.5, 6.83, 155, 1.18, 648, 13.0),
    },
    "values: flat Avro": {  # 37.39 bytes a record
        "fronts": Limits(3.19, 2.52, 0.717, 80.4, 0, 102, 3.00),
        "measure_values": Limits(21.6, 18.1, 6.19, 169, 1.13, 690, 12.0),
        "flag_bits": Limits(0.838, 2.03, 0.514, 2.82, 0, 424, 2.00),
        "texts": Limits(19.0, 11.2, 6.23, 95.6, 0, 154, 12.0),
    },
    "values: Protobuf": {  # 49.87 bytes a record
        "fronts": Limits(3.19, 2.54, 0.816, 81.0, 0, 102, 3.00),
        "measure_messages": Limits(55.3, 51.2, 32.0, 260, 5.01, 1783, 21.0),
        "flag_bits": Limits(0.838, 2.03, 0.514, 2.85, 0, 424, 2.00),
        "texts": Limits(21.3, 13.2, 7.79, 119, 0, 172, 13.0),
        "write_messages": Limits(34.8, 30.7, 24.0, 186, 3.49, 1130, 16.0),
    },
}
"""By the way of `tests/kit/ptx_decode.py`: bytes of a batch, and whether there are few, or the format of values; and by the kernel."""
