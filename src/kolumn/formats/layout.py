"""Types in which each format's file declares the layouts of its entries, and which magic has which layout.

The stages look these facts up in `kolumn.formats.layouts`, so a new format needs one file in this folder and its name in `layouts`.

Codec numbers, stored in bits 0 to 2 of an entry's attributes in every format (``CompressionType``).

Contents of entries beyond offsets, keys and values. A conversion to a layout that cannot hold one of them loses it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from kolumn.core.errors import Code
from kolumn.formats.entry import Message
from kolumn.formats.memory import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_OK, _BAD_CODEC, _CODEC_NOT_ALLOWED = int(Code.OK), int(Code.BAD_CODEC), int(Code.CODEC_NOT_ALLOWED)


class Family(IntEnum):
    """Kind of an entry's payload."""

    RECORDS = 0
    """A record batch: records of format 2, whose number is in the batch's header. Records have headers, batches delete horizons."""
    MESSAGES = 1
    """A message or, with a codec, a wrapper around messages."""
    SET = 2
    """A set of messages after a header that belongs to the set."""


class Outline(NamedTuple):
    """How an entry may be laid out whose length field is not believed. All positions are in bytes from the entry's first.

    Attributes
    ----------
    smallest : int
        Smallest size of such an entry.
    crc_from : int
        The first byte that the running checksum takes in.
    wanted : int
        The stored checksum.
    castagnoli : bool
        Whether it is CRC-32C; otherwise it is CRC-32.
    register : int
        The checksum's register before that byte.
    mark : int
        How many of the first bytes tell the entry from others: its offset and its length are among them.
    """

    smallest: int
    crc_from: int
    wanted: int
    castagnoli: bool
    register: int = 0xFFFFFFFF
    mark: int = 12


@dataclass(frozen=True, eq=False)
class Layout:
    """One way to lay out an entry. Its functions are scalar functions: they are compiled to machine code for both backends.

    Attributes
    ----------
    name : str
    number : int
        Value of `table.LAYOUT` in the batch table; each layout has a number of its own, from 0 to 11 except 7.
    family : Family
    smallest : int
        Smallest size of an entry, in bytes; used if its length field cannot be trusted.
    crc_at, crc_from : int
        Position of the checksum and of the first byte that it covers, in bytes from the entry's first. 0 if the header has no fixed
        width.
    castagnoli : bool
        Whether the checksum is CRC-32C; otherwise it is CRC-32.
    header : callable
        ``(buf, pos, size, row)``: fills a row of the batch table; returns a code.
    plausible : callable
        ``(buf, pos, size)``: whether bits that no writer sets are clear in an entry whose length field is ``size``.
    codec_code : callable
        ``(attributes, codec)``: OK if entries may have this codec, else the code of the error.
    holds : mapping of int to set of str
        By magic: contents of entries beyond offsets, keys and values (`kolumn.formats.layout`).
    header_bytes : callable, optional
        ``(buf, pos, size)``: how many bytes ``header`` reads, for layouts without a fixed maximum; 0 if those of every header are enough.
    believable : callable, optional
        ``(head, row)``: fill a row from a header whose length may be wrong; False if no writer writes such a header.
    attribute_bytes, smallest_record : int
        Bytes of a record's attributes, and of the smallest record of a batch.
    hop : callable, optional
        ``(buf, at, end, wrapped)``: code, and the end of the message at ``at``.
    message : callable, optional
        ``(buf, at, end, wrapped, attributes, base, number)``: fields of the message at ``at``, which ends at ``end``. It is message
        ``number`` of an entry with these attributes; ``base`` is added to inner offsets.
    wrapped : callable, optional
        ``(buf, at, stop)``: code, position and length of the compressed payload of a wrapper.
    inner_codec : callable, optional
        ``(attributes)``: not 0 if an inner message is compressed, which is an error.
    lowest_inner_magic : int
        Lowest magic of the messages in a wrapper.
    count : callable, optional
        ``(buf, end, check_crcs)``: code of a set, number of its messages, and the position of an error.
    first_offset : bool
        Whether a wrapper's offset is that of its first message; otherwise it is that of its last one.
    control_bit : int
        Bit of a message's attributes that makes it a control message.
    flagged_bit, tombstone_bit : int
        ``flagged_bit`` is set by the decoder if ``tombstone_bit``, and not the value, decides whether a message is a tombstone.
    tagged_bit : int
        Bit that the decoder sets if a message has a broker timestamp.
    control_types : tuple of str
        Names of the control types, by their numbers in the keys of control records.
    typed_control : bool
        Whether the type of a control message is in its attributes. Then ``control_types`` are numbered from ``control_bit`` on.
    unsigned : bool
        Whether varints are unsigned.
    streamed : bool
        Whether `kolumn.cpu_fallback.stream` decodes such entries: records of format 2 after a header of 61 bytes.
    sealed : bool
        Whether headers have checksums of their own. One that is right says where its entry ends, and which offsets it has.
    """

    name: str
    number: int
    family: Family
    smallest: int
    crc_at: int
    crc_from: int
    castagnoli: bool
    header: Callable[..., int]
    plausible: Callable[[Buffer, int, int], bool]
    codec_code: Callable[[int, int], int]
    holds: Mapping[int, frozenset[str]] = field(default_factory=dict)
    header_bytes: Callable[[Buffer, int, int], int] | None = None
    believable: Callable[[Any, Any], bool] | None = None
    attribute_bytes: int = 1
    smallest_record: int = 1
    hop: Callable[..., tuple[int, int]] | None = None
    message: Callable[..., Message] | None = None
    wrapped: Callable[[Buffer, int, int], tuple[int, int, int]] | None = None
    inner_codec: Callable[[int], int] | None = None
    lowest_inner_magic: int = 0
    count: Callable[..., tuple[int, int, int]] | None = None
    first_offset: bool = False
    control_bit: int = 0
    flagged_bit: int = 0
    tombstone_bit: int = 0
    tagged_bit: int = 0
    control_types: tuple[str, ...] = ()
    typed_control: bool = False
    unsigned: bool = False
    streamed: bool = False
    sealed: bool = False


@dataclass(frozen=True, eq=False)
class Format:
    """A value of the option ``format``: the layouts that may be mixed in its segments.

    Attributes
    ----------
    name : str
    magics : mapping of int to Layout
        Layouts of entries that have their magic at byte 16, by that magic; none if all entries of the format have frames of their own.
    magic : int
        Magic of written entries, unless the caller asks for another one.
    own_frame : callable, optional
        ``(buf, pos, end)``: code and size of an entry that has its magic elsewhere.
    own_crc_at : callable, optional
        ``(buf, pos)``: position of the checksum of such an entry; the bytes that it covers begin 4 bytes after that.
    own_offset : callable, optional
        ``(buf, pos)``: offset in the header of such an entry, if it is not in the first 8 bytes.
    own_shapes : callable, optional
        ``(head, size)``: how such an entry at the beginning of ``head`` may be laid out, ignoring its length field.
    own_believable : callable, optional
        ``(head, row)``: as `Layout.believable`; None if ``head`` is not the head of such an entry.
    own_layouts : tuple of Layout
        Layouts of such entries. The first one is used until the header has been read; the last one is written.
    timed_index : bool
        Whether the index of a segment also has timestamps, as proposed for the enriched format; the offset in it is an entry's first.
    as_shipped : bool
        Whether attributes of an entry apply to all of its records, as in the shipped formats. Otherwise messages have their own.
    transactions_in_sets : bool
        Whether transactions begin and end inside entries.
    raw_offsets : bool
        Whether entries have offsets of the log itself, of which consumers do not have all.
    indexed : bool
        Whether a segment has Kafka's index files beside it, and is named by Kafka. Otherwise it is named by its base offset and its term.
    """

    name: str
    magics: Mapping[int, Layout]
    magic: int
    own_frame: Callable[[Buffer, int, int], tuple[int, int]] | None = None
    own_crc_at: Callable[[Buffer, int], int] | None = None
    own_offset: Callable[[Buffer, int], int] | None = None
    own_shapes: Callable[[Any, int], Iterator[Outline]] | None = None
    own_believable: Callable[[Any, Any], bool | None] | None = None
    own_layouts: tuple[Layout, ...] = ()
    timed_index: bool = False
    as_shipped: bool = False
    transactions_in_sets: bool = False
    raw_offsets: bool = False
    indexed: bool = True

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """All layouts of the format, each once."""
        return (*dict.fromkeys([*self.magics.values(), *self.own_layouts]),)


def codec_up_to(codec: int, highest: int) -> int:
    """OK if ``codec`` is at most ``highest``, the highest codec of a layout; else the code of the error."""
    if codec <= highest:
        return _OK
    return _CODEC_NOT_ALLOWED if codec == ZSTD else _BAD_CODEC


def chosen(functions: Mapping[int, Callable[..., Any]], made: list[Callable[..., Any]]) -> Callable[..., Any]:
    """A function with one more argument in front: the number of the layout (or format) whose function it calls. It is a chain of
    comparisons, which compilers resolve if the number is a constant. For a number without a function the last function is called. All
    functions of the chain are appended to ``made``, because the compilers have to know each of them."""
    (number, function), *others = functions.items()

    def last(number: int, *arguments: Any) -> Any:
        return function(*arguments)

    if not others:
        made.append(last)
        return last
    following = chosen(dict(others), made)

    def first(asked: int, *arguments: Any) -> Any:
        if asked == number:
            return function(*arguments)
        return following(asked, *arguments)

    made.append(first)
    return first


TIMESTAMPS = "timestamps"
APPEND_TIMES = "LogAppendTime types"
HEADERS = "headers"
PRODUCERS = "producer ids, epochs and sequences"
TRANSACTIONS = "transactional flags"
MARKERS = "COMMIT and ABORT markers"
OTHER_CONTROL = "control records of other types"
TYPED_CONTROL = "control messages of the enriched format"
LEADER_EPOCHS = "leader epochs"
HORIZONS = "delete horizons"
EMPTY = "empty batches"
DELETES = "payloads of tombstones"
TOMBSTONES = "records without a value that become tombstones"
SECONDS = "timestamps in seconds beside the broker's"
OWN_TYPES = "batches of Redpanda's own"
ELSEWHERE = "batches whose records are in other objects"
RECORD_BATCH = frozenset(
    {TIMESTAMPS, APPEND_TIMES, HEADERS, PRODUCERS, TRANSACTIONS, MARKERS, OTHER_CONTROL, LEADER_EPOCHS, HORIZONS, EMPTY}
)
"""The contents that a record batch can hold."""
