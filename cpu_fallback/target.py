"""Where decoded records go, as compiled loops see it."""

from typing import NamedTuple

from kolumn.cpu_fallback.put import Payloads

ROWS, KEY, VALUE, HEADERS, HEADER_KEY, HEADER_VALUE = range(6)
"""Write positions in the array ``at``: rows, bytes of keys and values, headers, bytes of their keys and values."""
POSITIONS = 6


class Target(NamedTuple):
    """Where the columns of a run of batches go; all addresses.

    ``offset`` and ``timestamp`` (ms) are int64, ``header_ends`` the int32 list offsets, 0 where headers are not wanted. Formats whose
    messages have attributes of their own put them into the uint8 ``attributes``, zeros to begin with, 0 where they are not wanted;
    ``seconds`` (int64) is the timestamp of an enriched message.
    """

    offset: int
    timestamp: int
    key: Payloads
    value: Payloads
    header_ends: int
    header_key: Payloads
    header_value: Payloads
    attributes: int
    seconds: int
