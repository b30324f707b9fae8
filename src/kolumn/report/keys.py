"""Keys of records: how many there are, and which are frequent, by sketches of Apache DataSketches."""

import hashlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_LOG_SIZE, _LOG_ITEMS = 14, 13
"""2**14 registers of HyperLogLog (an error of 0.8 %), 2**13 places for frequent keys: some MiB at most."""
_LONG = 200
"""A longer key is known by its beginning and its hash."""
_SHOWN = 20


@dataclass(frozen=True)
class Frequent:
    """The first bytes of a frequent key, and bounds of its number of records."""

    key: bytes
    least: int
    most: int


class Keys:
    """Sketches of the keys of all records; `available` says whether there are any."""

    def __init__(self) -> None:
        try:
            import datasketches
        except ImportError:
            self._distinct = self._frequent = None
        else:
            self._distinct = datasketches.hll_sketch(_LOG_SIZE)
            self._frequent = datasketches.frequent_strings_sketch(_LOG_ITEMS)
            self._certain = datasketches.frequent_items_error_type.NO_FALSE_POSITIVES

    @property
    def available(self) -> bool:
        """Whether the package datasketches is installed."""
        return self._distinct is not None

    def add(self, keys: pa.Array) -> None:
        """Add keys; nulls are no keys."""
        if self._distinct is None or self._frequent is None:
            return
        counted = pc.value_counts(keys)
        for key, count in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
            if key is not None:
                text = _text(key)
                self._distinct.update(text)
                self._frequent.update(text, count)

    def distinct(self) -> tuple[int, int, int]:
        """Number of different keys: estimate, and bounds that hold with 95 %."""
        sketch: Any = self._distinct
        return round(sketch.get_estimate()), round(sketch.get_lower_bound(2)), round(sketch.get_upper_bound(2))

    def frequent(self) -> list[Frequent]:
        """The keys with most records, at most 20."""
        sketch: Any = self._frequent
        found = sketch.get_frequent_items(self._certain)
        return [Frequent(text[:_LONG].encode("latin-1"), least, most) for text, _, least, most in found[:_SHOWN]]


def _text(key: bytes) -> str:
    """The bytes as characters, since sketches take text."""
    if len(key) > _LONG:
        key = key[:_LONG] + hashlib.blake2b(key, digest_size=16).digest()
    return key.decode("latin-1")
