"""The size of segments in each format: they are encoded in all formats, in memory, and their bytes are counted."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from kolumn import keywords
from kolumn.accounting.anatomy import anatomy
from kolumn.api import segments_of
from kolumn.codecs import ZSTD
from kolumn.codecs.known import NAMES
from kolumn.conversion.losses import Losses
from kolumn.conversion.regroup import regroup
from kolumn.conversion.retarget import Changes
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.pipeline import OnDamage
from kolumn.encode.compress import codec_of
from kolumn.encode.entries import Encoded
from kolumn.encode.write import settings
from kolumn.formats import layouts
from kolumn.formats.entries import Entries
from kolumn.keywords import known_keywords
from kolumn.log.pieces import Piece, piece_of, pieces, whole_options
from kolumn.log.transactions import transactions_of_segment
from kolumn.options import Options
from kolumn.plan.walk import Loaded, walk_entries
from kolumn.source.segments import Segment
from kolumn.source.storage import parent
from kolumn.transactions.states import Transactions

TARGETS = (("kafka", 0), ("kafka", 1), ("kafka", 2), ("enriched", 1), ("kip98-draft", 2), ("v3-compact", 3), ("kip87", 2))


@dataclass
class Space:
    """Size of the records in one format.

    Attributes
    ----------
    format : str
        "as it is" for the segments themselves.
    magic : int, optional
    bytes, records : int
    parts : Counter of str
        Bytes by purpose, `anatomy.PARTS`.
    lost : Losses
        Records and fields that the format cannot store.
    codec : str
        "" if batches keep their codec.
    """

    format: str
    magic: int | None
    bytes: int
    records: int
    parts: Counter[str]
    lost: Losses
    codec: str = ""


@known_keywords()
def space(
    source: keywords.Source,
    *,
    codec: keywords.Codec | None = None,
    source_format: keywords.Format = "kafka",
    on_damage: OnDamage | None = None,
    errors: keywords.Errors = "raise",
    check_crcs: bool = True,
    replicas: keywords.Replicas = "raise",
    topic: str | None = None,
    partition: int | None = None,
    chunk_bytes: int | None = None,
    memory_bytes: int | None = None,
    max_batch_bytes: int = 2**31 - 1,
    max_ratio: float = 1032.0,
    on_progress: keywords.Progress | None = None,
) -> list[Space]:
    """Count the bytes of segments by purpose, as they are and as each format would encode them. No file is written.

    Parameters
    ----------
    source
        As in `kolumn.scan`.
    codec : str, optional
        Codec of the encoded batches; by default each keeps its own, except that zstd, which older formats lack, becomes gzip.
    source_format : str
        Format of the source.
    on_damage : callable, optional
        As in `kolumn.scan`.
    errors, check_crcs, replicas, topic, partition, chunk_bytes, memory_bytes, max_batch_bytes, max_ratio, on_progress
        As in `kolumn.scan`.

    Returns
    -------
    list of Space
        The first one is the source itself. Formats without transactions store the records of committed transactions as plain records.
    """
    chosen = whole_options(
        source_format,
        errors=errors, check_crcs=check_crcs, replicas=replicas, topic=topic, partition=partition, chunk_bytes=chunk_bytes,
        memory_bytes=memory_bytes, max_batch_bytes=max_batch_bytes, max_ratio=max_ratio, on_progress=on_progress,
    )  # fmt: skip
    return _space(segments_of(source, chosen), chosen, None if codec is None else codec_of(codec), on_damage)


def _space(segments: list[Segment], chosen: Options, asked: int | None, on_damage: OnDamage | None) -> list[Space]:
    found = [
        Space("as it is", None, 0, 0, Counter(), Losses()),
        *(Space(format, magic, 0, 0, Counter(), Losses()) for format, magic in TARGETS),
    ]
    known: dict[str, Transactions] = {}
    for segment in segments:
        if parent(segment.path) not in known:
            known[parent(segment.path)] = transactions_of_segment(segment, chosen)
        changes = [_changes(format, magic, known[parent(segment.path)]) for format, magic in TARGETS]
        for piece in pieces(segment, chosen, on_damage):
            _add(found[0], anatomy(piece), piece.records.num_rows)
            for one, change in zip(found[1:], changes, strict=True):
                for encoded in regroup(piece, change, _codec(piece, change, asked, one), one.lost):
                    _add(one, anatomy(_read_back(encoded, one.format)), int(encoded.entries.count.sum()))
    return found


def _changes(format: str, magic: int, transactions: Transactions) -> Changes:
    how = settings(format, magic, "none", None, 16384, None)
    return Changes(how, None, transactions if layouts.holds_messages(how.layout) else None)


def _codec(piece: Piece, changes: Changes, asked: int | None, space: Space) -> int | None:
    """The codec for a piece's entries: one that the format supports."""
    lacks = not layouts.holds_records(changes.how.layout)
    wanted = (piece.entries.codec == ZSTD).any() if asked is None else asked == ZSTD
    chosen = codec_of("gzip") if lacks and wanted else asked
    space.codec = "" if chosen is None else NAMES[chosen]
    return chosen


def _read_back(encoded: Encoded, format: str) -> Piece:
    """Decode entries in memory."""
    end = len(encoded.data)
    source = np.zeros(end + PAD, np.uint8)
    source[:end] = encoded.data
    entries = Entries.room(len(encoded.entries))
    walk_entries(Loaded.whole(source, end), 0, end, layouts.FORMAT_NAMES.index(format), entries, whole=True, decide=False)
    return piece_of(source, 0, entries, Segment("<memory>", None, None, None, end), Options(format=format))


def _add(space: Space, parts: Counter[str], records: int) -> None:
    space.parts.update(parts)
    space.bytes += sum(parts.values())
    space.records += records
