"""Columns of bytes: offsets, validity, and the payloads gathered."""

from dataclasses import dataclass

import numpy as np

from kolumn.core.arrays import Bytes
from kolumn.kernels.columns.gather import Gather, Sizes, Validity, gather_for, sizes, validity
from kolumn.kernels.fields.records import DevicePayloads, DeviceRecords, Headers, headers
from kolumn.kernels.machine.runtime import Memory, Runtime


@dataclass
class Binary:
    """A column of bytes on the device: ``ends`` (int32 of rows + 1), ``data``, and a validity bitmap in words of 32 rows."""

    ends: Memory
    data: Memory
    bitmap: Memory
    rows: int
    size: int
    nulls: int


@dataclass
class Measured:
    """A column of bytes before its payloads are moved: offsets and validity are being written, their sums are to be downloaded."""

    payloads: DevicePayloads
    ends: Memory
    bitmap: Memory
    nulls: Memory

    @property
    def wanted(self) -> list[tuple[Memory, int, int]]:
        """What to download: the bytes of the column, and how many rows are null."""
        rows = self.payloads.count
        return [(self.ends, 4, 4 * rows), (self.nulls, 4, 4 * max(_words(rows) - 1, 0))]


def _words(rows: int) -> int:
    return -(-rows // 32)


def number_of(downloaded: Bytes) -> int:
    """An int32."""
    return int(downloaded.view(np.int32)[0])


def measure(device: Runtime, payloads: DevicePayloads) -> Measured:
    """Begin a column of bytes; does not wait.

    The sum of the lengths is less than 2 GiB: the payloads of a run of batches are.
    """
    n = payloads.count
    ends, bitmap, nulls = device.pieces([4 * (n + 1), 4 * _words(n), max(4 * _words(n), 4)], zeros=not n)
    _write_ends(device, payloads.length, n, ends)
    _write_bitmap(device, payloads.length, n, bitmap, nulls)
    return Measured(payloads, ends, bitmap, nulls)


def moved(device: Runtime, measured: Measured, size: int, nulls: int) -> Binary:
    """Copy the payloads into the column that was begun, whose sums are ``size`` and ``nulls``."""
    payloads, data = measured.payloads, device.empty(size)
    device.launch(gather_for(size, payloads.count), payloads.count, Gather(payloads.at.address, measured.ends.address, data.address))
    return Binary(measured.ends, data, measured.bitmap, payloads.count, size, nulls)


def binary(device: Runtime, payloads: DevicePayloads) -> Binary:
    """Payloads copied into a column."""
    measured = measure(device, payloads)
    size, nulls = map(number_of, device.downloads(measured.wanted))
    return moved(device, measured, size, nulls)


def begin_ends(device: Runtime, lengths: Memory, rows: int) -> Memory:
    """Offsets of a column (int32 of rows + 1) by the lengths of its rows; does not wait. The last of them is the bytes of the column."""
    ends = device.empty(4 * (rows + 1)) if rows else device.zeros(4)
    _write_ends(device, lengths, rows, ends)
    return ends


def _write_ends(device: Runtime, lengths: Memory, rows: int, ends: Memory) -> None:
    device.launch(sizes, rows, Sizes(lengths.address, ends.address))
    device.running_sum(ends, rows + 1, 4)


def ends_of(device: Runtime, lengths: Memory, rows: int) -> tuple[Memory, int]:
    """Offsets of a column (int32 of rows + 1) by the lengths of its rows, and the last of them."""
    ends = begin_ends(device, lengths, rows)
    return ends, number_of(device.download(ends, 4, 4 * rows))


def _write_bitmap(device: Runtime, lengths: Memory, rows: int, bitmap: Memory, nulls: Memory) -> None:
    words = _words(rows)
    device.launch(validity, words, Validity(lengths.address, rows, bitmap.address, nulls.address))
    if words:
        device.running_sum(nulls, words, 4)


def begin_bitmap(device: Runtime, lengths: Memory, rows: int) -> tuple[Memory, tuple[Memory, int, int]]:
    """Validity bitmap by the lengths of rows, and what to download: how many are null. Does not wait."""
    words = _words(rows)
    bitmap, nulls = device.pieces([4 * words, max(4 * words, 4)], zeros=not rows)
    _write_bitmap(device, lengths, rows, bitmap, nulls)
    return bitmap, (nulls, 4, 4 * max(words - 1, 0))


def headers_of(device: Runtime, records: DeviceRecords) -> tuple[Memory, DevicePayloads, DevicePayloads]:
    """List offsets of the headers' column (int32 of rows + 1), keys and values of the headers."""
    ends, total = ends_of(device, records.headers, records.rows)
    return ends, *header_parts(device, records, ends, total)


def header_parts(device: Runtime, records: DeviceRecords, ends: Memory, total: int) -> tuple[DevicePayloads, DevicePayloads]:
    """Keys and values of the headers, whose list offsets are ``ends``; does not wait."""
    key, key_length, value, value_length = device.pieces([8 * total, 4 * total, 8 * total, 4 * total])
    keys, values = DevicePayloads(key, key_length, total), DevicePayloads(value, value_length, total)
    args = Headers(records.header.address, ends.address, keys.at.address, keys.length.address, values.at.address, values.length.address)
    device.launch(headers, records.rows if total else 0, args)
    return keys, values
