"""What each hot kernel costs, counted by running its PTX: `tests/gpu/test_ptx_budgets.py` holds it, `bench.gpu_model` takes it.

Keys have 11 bytes, values 100, as in `bench.data`; in batches of 1 MiB 60 to 140. Typed values are the orders of `bench.value_data`, and
parts of them. Counted as `tests/kit/ptx_cost.py` says.
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


RECORD_BYTES = {
    "16 KiB": 121.5, "16 KiB, few": 121.5, "1 MiB": 121.05,
    "values: Avro": 49.033, "values: flat Avro": 37.393, "values: Protobuf": 49.87, "values: JSON": 123.26, "values: CSV": 38.272,
    "values: fixed": 17.0,
}  # fmt: skip
"""Bytes of a segment, or of values, for each record: what is counted for a record, divided by these, is for a byte."""

COSTS = {
    "16 KiB": {  # 121.50 bytes a record
        "check": Limits(29.7, 4.11, 1.09, 125, 12.0, 7855, 284),
        "count": Limits(0.0299, 0.0208, 0.0166, 0.665, 0, 58.0, 3.00),
        "hop": Limits(2.17, 4.03, 4.02, 41.7, 0, 9290, 274),
        "fields": Limits(9.90, 11.3, 9.30, 114, 0, 325, 18.0),
        "sizes": Limits(0.632, 0.282, 0.0940, 8.01, 0, 21.0, 1.00),
        "validity": Limits(0.432, 1.01, 1.01, 4.26, 0, 364, 32.0),
        "gather_short": Limits(8.00, 5.61, 4.36, 65.3, 0, 64.0, 7.00),
        "gather": Limits(19.5, 16.5, 8.81, 234, 0, 78.0, 9.00),
    },
    "16 KiB, few": {  # 121.50 bytes a record
        "check": Limits(84.4, 7.86, 4.84, 127, 12.0, 48881, 2040),
        "join": Limits(0.162, 0.513, 0.509, 2.84, 0, 621, 69.0),
        "count": Limits(0.0299, 0.0208, 0.0166, 0.665, 0, 58.0, 3.00),
        "hop_staged": Limits(14.4, 4.77, 1.87, 130, 1.53, 11501, 468),
        "fields": Limits(9.90, 11.3, 9.30, 114, 0, 325, 18.0),
        "sizes": Limits(0.632, 0.282, 0.0940, 8.01, 0, 21.0, 1.00),
        "validity": Limits(0.432, 1.01, 1.01, 4.26, 0, 364, 32.0),
        "gather_short": Limits(8.00, 5.61, 4.36, 65.3, 0, 64.0, 7.00),
        "gather": Limits(19.5, 16.5, 8.81, 234, 0, 78.0, 9.00),
    },
    "1 MiB": {  # 121.05 bytes a record
        "check": Limits(33.0, 3.99, 1.07, 123, 11.9, 13833, 433),
        "join": Limits(0.0811, 0.00822, 0.00822, 0.0488, 0, 621, 69.0),
        "count": Limits(0.0151, 0.000587, 0.000587, 0.0188, 0, 58.0, 3.00),
        "hop_sliced": Limits(74.8, 10.1, 4.11, 130, 6.67, 40320, 574),
        "fields": Limits(9.71, 11.2, 8.73, 113, 0, 326, 18.0),
        "sizes": Limits(0.634, 0.282, 0.0940, 8.01, 0, 21.0, 1.00),
        "validity": Limits(0.393, 1.01, 1.01, 4.26, 0, 368, 32.0),
        "gather_short": Limits(8.02, 5.62, 4.23, 65.4, 0, 64.0, 7.00),
        "gather": Limits(19.8, 17.3, 9.64, 234, 0, 89.0, 11.0),
    },
    "values: Avro": {  # 49.03 bytes a record
        "fronts": Limits(4.97, 7.91, 2.86, 109, 0, 159, 12.0),
        "measure_values": Limits(35.5, 47.5, 21.7, 185, 0, 1138, 91.0),
        "write_values": Limits(46.0, 71.3, 32.1, 266, 0, 1537, 168),
        "flag_bits": Limits(0.473, 1.01, 0.252, 1.25, 0, 414, 32.0),
    },
    "values: flat Avro": {  # 37.39 bytes a record
        "fronts": Limits(3.10, 2.73, 0.749, 87.4, 0, 99.0, 3.00),
        "avro": Limits(20.1, 22.0, 7.31, 115, 0, 641, 38.0),
        "narrow": Limits(0.782, 0.500, 0.125, 16.0, 0, 25.0, 1.00),
    },
    "values: Protobuf": {  # 49.87 bytes a record
        "fronts": Limits(3.10, 2.75, 0.847, 88.0, 0, 99.0, 3.00),
        "measure_messages": Limits(56.0, 70.2, 43.6, 234, 0, 1795, 197),
        "write_messages": Limits(63.6, 90.6, 52.8, 306, 0, 2101, 277),
        "flag_bits": Limits(0.473, 1.01, 0.252, 1.25, 0, 414, 32.0),
    },
    "values: JSON": {  # 123.26 bytes a record
        "line_sizes": Limits(1.82, 4.54, 3.84, 49.1, 0, 58.0, 6.00),
        "lines": Limits(53.3, 266, 254, 278, 0, 1708, 173),
    },
    "values: CSV": {  # 38.27 bytes a record
        "fronts": Limits(3.10, 2.75, 0.757, 88.0, 0, 99.0, 3.00),
        "split": Limits(18.1, 42.5, 13.9, 99.4, 0, 584, 52.0),
        "integer": Limits(6.22, 7.68, 2.46, 61.1, 0, 204, 10.0),
        "narrow": Limits(0.782, 0.500, 0.125, 16.0, 0, 25.0, 1.00),
        "text": Limits(4.72, 17.4, 5.48, 62.3, 0, 151, 15.0),
        "boolean": Limits(2.29, 5.22, 2.67, 59.5, 0, 73.0, 11.0),
    },
    "values: fixed": {  # 17.00 bytes a record
        "fronts": Limits(3.32, 2.29, 0.594, 73.0, 0, 106, 3.00),
        "fixed": Limits(4.10, 5.00, 1.44, 41.0, 0, 131, 10.0),
        "present": Limits(0.594, 0.157, 0.0625, 5.00, 0, 19.0, 1.00),
    },
}
"""By the way of `tests/kit/ptx_decode.py`: bytes of a batch, and whether there are few, or the format of values; and by the kernel."""
