"""The size of segments in each format, from the lengths of the fields of their records: only what a codec saves has to be tried."""

from collections import Counter
from dataclasses import dataclass
from typing import Unpack

from kolumn import keywords
from kolumn.accounting.anatomy import anatomy
from kolumn.accounting.sizes import FormatSizes
from kolumn.conversion.losses import Losses
from kolumn.conversion.retarget import Changes
from kolumn.decode.pipeline import OnDamage
from kolumn.encode.compress import codec_of
from kolumn.encode.write import settings
from kolumn.formats import layouts
from kolumn.keywords import known_keywords
from kolumn.log.pieces import pieces
from kolumn.log.transactions import transactions_of_segment
from kolumn.options import Options
from kolumn.read_plan import live_segments
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
    estimated : int
        How many of the bytes were estimated. Of the batches with a codec, the first MiB before compression and then 256 KiB of each
        4 MiB are compressed; the size of the others is what these make likely. 0 if all sizes are exact, as without a codec.
    """

    format: str
    magic: int | None
    bytes: int
    records: int
    parts: Counter[str]
    lost: Losses
    codec: str = ""
    estimated: int = 0


@known_keywords()
def space(
    source: keywords.Source,
    *,
    codec: keywords.Codec | None = None,
    source_format: keywords.Format = "kafka",
    on_damage: OnDamage | None = None,
    keys: keywords.Keys | None = None,
    **options: Unpack[keywords.WholeOptions],
) -> list[Space]:
    """Count the bytes of segments by purpose, as they are and as each format would encode them. No file is written.

    Sizes follow from the lengths of fields. What a codec saves is measured on a part of the batches, see `Space.estimated`.

    Parameters
    ----------
    source
        As in `kolumn.scan`.
    codec : str, optional
        Codec of the encoded batches; by default each keeps its own, except that zstd, which older formats lack, becomes gzip.
    source_format : str
        Format of the source.
    on_damage, keys
        As in `kolumn.scan`.
    errors, check_crcs, …
        All others as in `kolumn.scan`.

    Returns
    -------
    list of Space
        The first one is the source itself. Formats without transactions store the records of committed transactions as plain records.
    """
    chosen = Options.of(format=source_format, keys=keys, **options)
    return _space(live_segments(source, chosen).one_log(of_tiers=True), chosen, None if codec is None else codec_of(codec), on_damage)


def _space(segments: list[Segment], chosen: Options, asked: int | None, on_damage: OnDamage | None) -> list[Space]:
    own = Space("as it is", None, 0, 0, Counter(), Losses())
    found = [Space(format, magic, 0, 0, Counter(), Losses()) for format, magic in TARGETS]
    sizes = [FormatSizes(one.lost, asked) for one in found]
    known: dict[str, Transactions] = {}
    for segment in segments:
        if parent(segment.path) not in known:
            known[parent(segment.path)] = transactions_of_segment(segment, chosen)
        changes = [_changes(format, magic, known[parent(segment.path)]) for format, magic in TARGETS]
        for piece in pieces(segment, chosen, on_damage):
            own.parts.update(anatomy(piece))
            own.records += piece.records.num_rows
            for size, change in zip(sizes, changes, strict=True):
                size.add(piece, change)
    for one, size in zip(found, sizes, strict=True):
        one.parts, one.records, one.codec, one.estimated = size.parts, size.records, size.codec, size.estimated
    for one in (own, *found):
        one.bytes = sum(one.parts.values())
    return [own, *found]


def _changes(format: str, magic: int, transactions: Transactions) -> Changes:
    how = settings(format, magic, "none", None, 16384, None)
    return Changes(how, None, transactions if layouts.holds_messages(how.layout) else None)
