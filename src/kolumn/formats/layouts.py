"""Which layout an entry has: of the shipped formats its magic tells, of the drafts the reader is told.

Three of the drafts reuse a magic that was then given to something else, so bytes alone can't tell them apart: ``format=`` does.

    format        entries by magic          file
    kafka         0, 1 message · 2 batch    legacy.py, v2.py
    enriched      0 message · 1 tagged      enriched.py
    kip98-draft   0, 1 message · 2 set      kip98_draft.py
    v3-compact    as kafka · 3 batch        v3_compact.py; its magic stands behind a varint, so the frame decides
    kip87         0, 1, 2 message           kip87.py
"""

KAFKA, ENRICHED_FORMAT, KIP98_FORMAT, V3_FORMAT, KIP87_FORMAT = range(5)
"""Formats, as the option names them."""
FORMAT_NAMES = ("kafka", "enriched", "kip98-draft", "v3-compact", "kip87")

LEGACY, V2, V3, V3_BARE, ENRICHED, KIP98, KIP87, NONE = range(8)
"""Layouts of an entry; V3_BARE is format 3 whose records have no attributes, NONE an unknown magic."""
BATCHES = (V2, V3, V3_BARE)
"""Record batches, with records, CRC-32C and delete horizons."""
MESSAGES = (LEGACY, ENRICHED, KIP87)
"""Messages, alone or wrapped: no transactions."""


def layout_of(format: int, magic: int) -> int:
    """Layout of an entry of one of the formats that have the magic at byte 16."""
    if magic == 2:
        if format == KIP98_FORMAT:
            return KIP98
        if format == KIP87_FORMAT:
            return KIP87
        return V2 if format in (KAFKA, V3_FORMAT) else NONE
    if magic == 1 and format == ENRICHED_FORMAT:
        return ENRICHED
    return LEGACY if magic <= 1 else NONE


def same_layout(a: int, b: int) -> bool:
    """Whether two layouts are of one format: format 3 with and without attributes is."""
    return a == b or (a in (V3, V3_BARE) and b in (V3, V3_BARE))


def has_castagnoli(layout: int) -> bool:
    """Whether the entry's checksum is CRC-32C, not CRC-32."""
    return layout in BATCHES


def attribute_bytes(layout: int) -> int:
    """Bytes of the attributes of a batch's records."""
    return 0 if layout == V3_BARE else 1


def holds_messages(layout: int) -> bool:
    """Whether the entry is a message, or with a codec a wrapper around messages, as in formats 0 and 1."""
    return layout in MESSAGES


def highest_inner_magic(format: int, layout: int) -> int:
    """Highest magic of the messages in a wrapper."""
    if layout == KIP87:
        return 2
    return 0 if format == ENRICHED_FORMAT and layout == LEGACY else 1
