"""The table of the KIP-98 draft: the overhead of messages of 1 KiB with a key of 100 bytes, in format 1 and in a set."""

from typing import Any

import numpy as np
import pyarrow as pa

from kolumn.encode.encoders import encode
from kolumn.encode.table import take_apart
from kolumn.encode.write import settings

BATCHES = (1, 3, 10, 50, 100)
_MESSAGE, _KEY, _TIME = 1024, 100, 1_700_000_000_000


def draft_table() -> list[dict[str, int]]:
    """Rows of batch size, overhead of format 1 without a codec, overhead of the draft's set, all from encoded bytes."""
    return [
        {"messages": count, "format 1": _overhead("kafka", 1, count), "kip98-draft": _overhead("kip98-draft", 2, count)}
        for count in BATCHES
    ]


def _overhead(format: str, magic: int, count: int) -> int:
    columns: dict[str, Any] = {
        "offset": np.arange(count),
        "timestampMs": np.full(count, _TIME),
        "key": pa.array([bytes(_KEY)] * count, pa.binary()),
        "value": pa.array([bytes(_MESSAGE - _KEY)] * count, pa.binary()),
    }
    encoded, _ = encode(take_apart(pa.table(columns), 0), settings(format, magic, "none", None, 1 << 30, None), last=True)
    return len(encoded.data) - count * _MESSAGE
