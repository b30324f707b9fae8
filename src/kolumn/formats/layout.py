"""What the file of a format says of itself: the layouts of its entries, and which magic means which of them.

The stages look these facts up (`kolumn.formats.layouts`), so a new format is a file here and its name there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from kolumn.errors import Code
from kolumn.formats.attributes import ZSTD
from kolumn.formats.fields import Message
from kolumn.formats.memory import Buffer

_OK, _BAD_CODEC, _CODEC_NOT_ALLOWED = int(Code.OK), int(Code.BAD_CODEC), int(Code.CODEC_NOT_ALLOWED)
_ZSTD = ZSTD


class Family(IntEnum):
    """What the payload of an entry is."""

    RECORDS = 0
    """A record batch: a chain of format 2's records, as many as the header says. Has headers and delete horizons."""
    MESSAGES = 1
    """The entry is a message itself or, with a codec, a wrapper around messages."""
    SET = 2
    """A set of messages after a header of the entry's own."""


@dataclass(frozen=True, eq=False)
class Layout:
    """One way to lay out an entry. Functions are scalar: they become machine code for both backends.

    Attributes
    ----------
    name : str
    number : int
        What a row of the batch table has in `table.LAYOUT`; each layout has its own, from 0 to 11.
    family : Family
    smallest : int
        Bytes of the smallest entry, as far as its header goes.
    crc_at, crc_from : int
        Where the checksum stands, and the first byte under it; bytes from the entry's first. 0 where the header has no fixed width.
    castagnoli : bool
        The checksum is CRC-32C; else it is CRC-32.
    header : callable
        ``(buf, pos, size, row)``: fills a row of the batch table; returns a code.
    plausible : callable
        ``(buf, pos, size)``: whether bits that no writer sets are clear, where the length field says ``size``.
    codec_code : callable
        ``(attributes, codec)``: OK where entries may have this codec, or the code of what is wrong.
    holds : mapping of int to set of str
        By magic: what entries can hold beyond offsets, keys and values (`kolumn.formats.contents`).
    header_bytes : callable, optional
        ``(buf, pos, size)``: how many bytes ``header`` reads, where that is not known beforehand; 0 for the usual ones.
    believable : callable, optional
        ``(head, row)``: fill a row from a header whose length may be wrong; False where it is none that a writer writes.
    attribute_bytes, smallest_record : int
        Of the records of a batch.
    hop : callable, optional
        ``(buf, at, end, wrapped)``: code, and where the message after the one at ``at`` begins.
    message : callable, optional
        ``(buf, at, end, wrapped, attributes, base, number)``: fields of the message at ``at``, which ends at ``end``. It is message
        ``number`` of an entry with these attributes; ``base`` is added to inner offsets.
    wrapped : callable, optional
        ``(buf, at, stop)``: code, position and length of what a wrapper wraps.
    inner_codec : callable, optional
        ``(attributes)``: not 0 where a message is compressed.
    lowest_inner_magic : int
        Of the messages in a wrapper.
    count : callable, optional
        ``(buf, end, check_crcs)``: of a set its code, messages, and the place of an offence.
    first_offset : bool
        A wrapper's offset is that of its first message; else of its last one.
    control_bit : int
        Attribute of a message that makes it a control message.
    flagged_bit, tombstone_bit : int
        Attribute that a decoder sets where ``tombstone_bit`` decides whether a message is a tombstone, whatever its value.
    tagged_bit : int
        Attribute that a decoder sets where a message has a timestamp of the broker's.
    control_types : tuple of str
        By the numbers that the layout writes into keys of control records; or, where ``typed_control``, into attributes.
    typed_control : bool
    unsigned : bool
        Varints are unsigned ones.
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


@dataclass(frozen=True, eq=False)
class Format:
    """A format as the option ``format`` names it: which layouts are mixed in its segments.

    Attributes
    ----------
    name : str
    magics : mapping of int to Layout
        Entries that have their magic at byte 16.
    magic : int
        Of what is written, unless something else is asked for.
    own_frame : callable, optional
        ``(buf, pos, end)``: code and size of an entry that has its magic elsewhere.
    own_crc_at : callable, optional
        ``(buf, pos)``: where the checksum of such an entry stands; the bytes under it begin four further on.
    own_shapes : callable, optional
        ``(head, size)``: what such an entry at the beginning of ``head`` may be, whatever its length says: tuples of the smallest size, the
        first byte under the checksum, the checksum's place, and whether it is CRC-32C.
    own_believable : callable, optional
        ``(head, row)``: as `Layout.believable`; None where no such entry is there.
    own_layouts : tuple of Layout
        Of such entries; the first one is meant until its header has been read, the last one is written.
    timed_index : bool
        An index of a segment has timestamps too, as the enriched format's document says; offsets of entries are their first ones.
    as_shipped : bool
        Entries say for all of their records what those are, as in the shipped formats. Else messages have attributes of their own.
    transactions_in_sets : bool
        Transactions begin and end inside of entries.
    """

    name: str
    magics: Mapping[int, Layout]
    magic: int
    own_frame: Callable[[Buffer, int, int], tuple[int, int]] | None = None
    own_crc_at: Callable[[Buffer, int], int] | None = None
    own_shapes: Callable[[Any, int], Iterator[tuple[int, int, int, bool]]] | None = None
    own_believable: Callable[[Any, Any], bool | None] | None = None
    own_layouts: tuple[Layout, ...] = ()
    timed_index: bool = False
    as_shipped: bool = False
    transactions_in_sets: bool = False

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """All layouts in it."""
        return (*dict.fromkeys([*self.magics.values(), *self.own_layouts]),)


def codec_up_to(codec: int, highest: int) -> int:
    """Code of a codec in a layout that has those up to ``highest``."""
    if codec <= highest:
        return _OK
    return _CODEC_NOT_ALLOWED if codec == _ZSTD else _BAD_CODEC


def chosen(functions: Mapping[int, Callable[..., Any]], made: list[Callable[..., Any]]) -> Callable[..., Any]:
    """A function that has one more argument, in front: the number of the layout (or format) whose function it calls.

    It is a chain of comparisons, which compilers resolve where the number is known; for a number that is not there the last function
    is called. All links of the chain are appended to ``made``: machine code has to know each.
    """
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
