"""What decoding returns: of one chunk, and of a range."""

from dataclasses import dataclass, field

import pyarrow as pa

from kolumn.damage.findings import Damage, Trouble
from kolumn.damage.remarks import Remark
from kolumn.plan.chunks import Chunk


@dataclass
class Decoded:
    """What a chunk gave.

    Attributes
    ----------
    reached : int
        Position after the last entry of the chunk, those that the decoder found itself too: there the plan goes on.
    batches : list of pa.RecordBatch
        Or of `kernels.table.DeviceTable`.
    damage : list of Damage
        Entries that were left out; the chain of entries goes on behind each.
    trouble : Trouble, optional
        Why decoding ended before the chunk did.
    last_offset : int
        Of the last intact entry, -1 without one. (Not the largest: offsets are not under the CRC.)
    undecided : bool
        Nothing was decoded: there is damage before the first intact entry, and what it means depends on the offsets before the chunk.
    intact, records, valid_bytes : int
        Intact entries, the records in those that were decoded, and the bytes of the former.
    inflated_by_cpu : int
        Payloads that the codecs of the CPU inflated for a GPU.
    rest : Chunk, optional
        Entries that are left, since those before took the chunk's share of memory.
    """

    reached: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    trouble: Trouble | None = None
    last_offset: int = -1
    undecided: bool = False
    intact: int = 0
    records: int = 0
    valid_bytes: int = 0
    inflated_by_cpu: int = 0
    rest: Chunk | None = None


@dataclass
class Tally:
    """What was found in a range.

    Attributes
    ----------
    batches, records : int
        Intact ones.
    valid_bytes : int
        Bytes of intact entries.
    tail : str, optional
        "truncated" or "zeros": normal states of an active segment.
    tail_bytes : int
    inflated_by_cpu : int
        Payloads that the codecs of the CPU inflated for a GPU.
    damage : list of Damage
    remarks : list of Remark
    """

    batches: int = 0
    records: int = 0
    valid_bytes: int = 0
    tail: str | None = None
    tail_bytes: int = 0
    inflated_by_cpu: int = 0
    damage: list[Damage] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def add(self, decoded: Decoded) -> None:
        """Count a decoded chunk in."""
        self.batches += decoded.intact
        self.records += decoded.records
        self.valid_bytes += decoded.valid_bytes
        self.inflated_by_cpu += decoded.inflated_by_cpu
        self.damage += decoded.damage
