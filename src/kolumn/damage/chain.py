"""The chain of entries in a chunk: after which damaged entries it continues, and where it is lost."""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from kolumn.core.errors import Code
from kolumn.damage.explain import header_error
from kolumn.damage.findings import Damage, Trouble, damage_of
from kolumn.damage.search import Search
from kolumn.formats.entries import Entries
from kolumn.log.chunks import Chunk
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile


class Floor(Enum):
    """Placeholder for the last offset before a chunk."""

    NOT_YET_KNOWN = "chunks before it are being decoded"


@dataclass
class Chain:
    """How far the chain of entries holds in a chunk.

    Attributes
    ----------
    entries : Entries
        The entries up to the place where the chain is lost, including damaged ones.
    damage : list of Damage
        Damage of those entries.
    trouble : Trouble, optional
        Where the chain is lost.
    undecided : bool
        There is damage before the first intact entry. It cannot be judged until the offsets before the chunk are known.
    """

    entries: Entries
    damage: list[Damage] = field(default_factory=list)
    trouble: Trouble | None = None
    undecided: bool = False


def chain_of(file: SegmentFile, chunk: Chunk, options: Options, floor: int | Floor) -> Chain:
    """Follow the chain of entries in a chunk whose checksums were compared.

    Parameters
    ----------
    file : SegmentFile
    chunk : Chunk
    options : Options
        Only ``errors`` is used.
    floor : int or Floor
        Last offset of the last intact entry before the chunk, -1 without one.
    """
    entries, damage = chunk.entries, list[Damage]()
    intact = np.flatnonzero(entries.is_intact)
    for i in np.flatnonzero(entries.code):
        row = entries[i]
        before = entries[intact[: np.searchsorted(intact, i)][-1:]]
        if not len(before) and floor is Floor.NOT_YET_KNOWN and options.errors == "skip":
            return Chain(entries[:0], damage, undecided=True)
        low = before.last_known_offset(-1 if floor is Floor.NOT_YET_KNOWN else floor)
        position, size = row.position, row.size
        source, origin = chunk.bytes_of(file, row)
        error = header_error(file.path, row, source[position - origin :][:size])
        resume, alone = None, True
        if options.errors == "skip":
            search = Search(file)
            resume = search.true_end(position, position + size - 1, low)
            following = entries[i + 1] if i + 1 < len(entries) and entries.code[i + 1] == Code.OK else None
            if resume is None and (on := search.after(row, low, following)) is not None:
                resume, alone = on
                if resume == position + size:
                    damage.append(damage_of(row, error, size, low))
                    continue
        return Chain(entries[:i], damage, Trouble(position, low, error, resume, row, alone=alone))
    return Chain(entries, damage)
