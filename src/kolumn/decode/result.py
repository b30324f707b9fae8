"""Results of decoding: of one chunk, and of a range."""

from dataclasses import dataclass, field

import pyarrow as pa

from kolumn.damage.findings import Damage, Trouble
from kolumn.damage.remarks import Remark
from kolumn.decode.observed import Observations, Observed
from kolumn.log.chunks import Chunk, Reached


@dataclass
class Decoded:
    """Result of decoding a chunk.

    Attributes
    ----------
    reached : Reached
        Where the chunk ends, including entries that the decoder found itself. The plan continues there.
    batches : list of pa.RecordBatch
        Or of `kernels.columns.table.DeviceTable`.
    damage : list of Damage
        Entries that were left out; the chain of entries continues after each.
    trouble : Trouble, optional
        Why decoding ended before the chunk did.
    last_offset : int
        Last offset of the last intact entry, -1 without one. (It need not be the largest: offsets are not under the CRC.)
    undecided : bool
        Nothing was decoded: there is damage before the first intact entry, which cannot be judged without the offsets before the chunk.
    intact, records, valid_bytes : int
        Number of intact entries, of records in the decoded ones, and of bytes of the intact entries.
    inflated_by_cpu : int
        Payloads that were decompressed on the CPU for a GPU.
    rest : Chunk, optional
        Entries that are left for later, since those before them used the chunk's share of memory.
    observed : list of Observed
        The decoded runs, if the options ask for remarks.
    """

    reached: Reached
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
    observed: list[Observed] = field(default_factory=list)


@dataclass
class Tally:
    """Counts, damage and remarks of a range.

    Attributes
    ----------
    batches, records : int
        Intact batches, and their records.
    valid_bytes : int
        Bytes of intact entries.
    tail : str, optional
        "truncated" or "zeros": normal states of an active segment.
    tail_bytes : int
    inflated_by_cpu : int
        Payloads that were decompressed on the CPU for a GPU.
    damage : list of Damage
    remarks : list of Remark
    observations : Observations
        What other remarks are made of, if the options ask for them.
    """

    batches: int = 0
    records: int = 0
    valid_bytes: int = 0
    tail: str | None = None
    tail_bytes: int = 0
    inflated_by_cpu: int = 0
    damage: list[Damage] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    observations: Observations | None = None

    def add(self, decoded: Decoded) -> None:
        """Add the counts and the damage of a decoded chunk."""
        self.batches += decoded.intact
        self.records += decoded.records
        self.valid_bytes += decoded.valid_bytes
        self.inflated_by_cpu += decoded.inflated_by_cpu
        self.damage += decoded.damage
        for one in decoded.observed:
            self.observations = self.observations or Observations()
            self.observations.add(one)
