"""Fields of a record of format 2, whatever they are: nearly all records are plain, which is found out with fewer instructions."""

from kolumn.errors import Code
from kolumn.formats import v2
from kolumn.formats.fields import Record
from kolumn.machine_code.deferred import register_jitable

_OK = int(Code.OK)


@register_jitable(forceinline=True)
def any_fields(at: int, end: int) -> Record:
    """As `v2.fields`, of a record at an address. Up to two bytes after ``end`` are read."""
    plain = v2.plain_fields(0, at, end, 1)
    if plain.next < 0:
        return v2.fields(0, at, end, 1)
    return Record(
        _OK, plain.next, plain.timestamp_delta, plain.offset_delta,
        plain.key, plain.key_length, plain.value, plain.value_length, plain.next, 0,
    )  # fmt: skip
