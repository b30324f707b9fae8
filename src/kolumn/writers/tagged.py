"""Rows become enriched messages: each is one entry, or with a codec several are in a wrapper."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import AnyArray, Bytes, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.encode.tagged import WRAPPER_TAGS, fill, measure, split, wrap
from kolumn.formats import enriched
from kolumn.formats.codecs import NONE
from kolumn.formats.entries import Entries
from kolumn.writers.entries import Encoded, EntrySettings, Groups, cuts, lay_out, place, whole
from kolumn.writers.messages import check
from kolumn.writers.table import RecordsIn

_LARGEST_SECONDS = 2**31 - 1


class MessageTimes(NamedTuple):
    """``seconds`` (int32) of each message, and flags (uint8) of the messages that also need a broker timestamp."""

    seconds: AnyArray
    tagged: Bytes


def group(given: RecordsIn, how: EntrySettings, last: bool) -> Groups:
    """Decide which records share a wrapper; see `entries.whole`.

    Raises `ArgumentError` for zstd, headers and transactional records. Producer fields and leader epochs are left out.
    """
    check(given, how, control=True)
    given.numbers = {name: values for name, values in given.numbers.items() if name == "isControl"}
    records = given.records
    first, size = np.empty(records.rows, np.int64), np.empty(records.rows, np.int64)
    most = 1 if how.codec == NONE else how.batch_records
    tagged = times_of(given).tagged
    count = split(records, tagged.ctypes.data, cuts(given), how.batch_bytes, most, first, size)
    return whole(given, first, size, count, last)


def regroup(given: RecordsIn, first: Int64s, entries: Entries, how: EntrySettings) -> Groups:
    """Groups for given message sets: the first row of each, and the wrapper's header fields as rows of the batch table."""
    size, tagged = np.empty(len(first), np.int64), times_of(given).tagged
    measure(given.records, tagged.ctypes.data, first, given.records.rows, size)
    return Groups(first, size, given.records.rows, entries, None)


def header_sizes(entries: Entries, size: Int64s, how: EntrySettings) -> Int64s:
    """Bytes of the wrappers around messages; messages without a codec have none."""
    return np.where(entries.codec == NONE, 0, enriched.message_size(WRAPPER_TAGS, -1, 0))


def put(given: RecordsIn, groups: Groups, how: EntrySettings) -> Encoded:
    """Write messages and wrappers.

    Raises `ArgumentError` if a record is too large, or a control record has a type that this format does not have.
    """
    entries = groups.rows(given, how)
    laid = lay_out(groups, entries, header_sizes(entries, groups.size, how))
    times, kinds = times_of(given), given.once("kinds", _kinds)
    to = laid.data.ctypes.data + laid.at
    addresses = (times.tagged.ctypes.data, kinds.ctypes.data, times.seconds.ctypes.data)
    fill(given.records, *addresses, groups.first, groups.stop, entries.array, to)
    encoded = place(laid, entries, header_sizes, how)
    wrap(encoded.data.ctypes.data, encoded.entries.array)
    return encoded


def times_of(given: RecordsIn) -> MessageTimes:
    """Timestamps of the messages, as `_times` finds them."""
    found: MessageTimes = given.once("times", _times)
    return found


def _times(given: RecordsIn) -> MessageTimes:
    """Timestamps in whole seconds; a message whose timestamp is not a whole second is flagged, since it also needs milliseconds."""
    exact, names = given.timestamp, given.table.schema.names
    seconds = exact // 1000
    seconds = np.where((seconds < 0) | (seconds > _LARGEST_SECONDS), -1, seconds)
    # Cheaper than a remainder.
    tagged = np.where(seconds < 0, exact != -1, exact != seconds * 1000)
    if "brokerTimestampMs" in names and given.table["brokerTimestampMs"].null_count < len(exact):
        tagged |= pc.is_valid(given.table["brokerTimestampMs"]).to_numpy()
    if "timestampSeconds" in names and given.table["timestampSeconds"].null_count < len(exact):
        known = pc.is_valid(given.table["timestampSeconds"]).to_numpy()
        said = pc.fill_null(given.table["timestampSeconds"].cast(pa.int64()), -1).to_numpy()
        seconds = np.where(known & (tagged | (said * 1000 == exact)), said, seconds)
    return MessageTimes(np.ascontiguousarray(seconds.astype(np.int32)), np.ascontiguousarray(tagged.astype(np.uint8)))


def _kinds(given: RecordsIn) -> Bytes:
    """Types of the messages: a plain message, or a type of control record."""
    kinds = np.zeros(given.records.rows, np.uint8)
    control = given.numbers.get("isControl")
    if control is None or not control.any():
        return kinds
    names = given.table.schema.names
    said = given.table["controlType"].to_pylist() if "controlType" in names else [None] * len(kinds)
    for row in np.flatnonzero(control).tolist():
        if said[row] not in enriched.CONTROL_TYPES:
            raise ArgumentError(
                f"column 'controlType': {said[row]} at offset {given.offset[row]}: expected one of {', '.join(enriched.CONTROL_TYPES)}"
            )
        kinds[row] = enriched.FIRST_CONTROL + enriched.CONTROL_TYPES.index(said[row])
    return kinds
