"""Columns of bytes: offsets, validity, and the payloads gathered."""

from dataclasses import dataclass

import numpy as np

from kolumn.kernels.columns.gather import Gather, gather_for
from kolumn.kernels.columns.steps import Sizes, Validity, sizes, validity
from kolumn.kernels.fields.decoded import Payloads, Records
from kolumn.kernels.fields.headers import Headers, headers
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


def ends_of(device: Runtime, lengths: Memory, rows: int) -> tuple[Memory, int]:
    """Offsets of a column (int32 of rows + 1) by the lengths of its rows, and the last of them.

    Their sum is less than 2 GiB: the payloads of a run of batches are.
    """
    ends = device.zeros(4 * (rows + 1))
    device.launch(sizes, rows, Sizes(lengths.address, ends.address))
    device.running_sum(ends, rows + 1, 4)
    return ends, int(device.download(ends, 4, 4 * rows).view(np.int32)[0])


def bitmap_of(device: Runtime, lengths: Memory, rows: int) -> tuple[Memory, int]:
    """Validity bitmap by the lengths of rows, and how many are null."""
    words = -(-rows // 32)
    bitmap, nulls = device.empty(4 * words), device.empty(4 * words)
    device.launch(validity, words, Validity(lengths.address, rows, bitmap.address, nulls.address))
    return bitmap, int(device.download(nulls, 4 * words).view(np.int32).sum())


def binary(device: Runtime, payloads: Payloads) -> Binary:
    """Payloads copied into a column."""
    ends, size = ends_of(device, payloads.length, payloads.count)
    data = device.empty(size)
    device.launch(gather_for(size, payloads.count), payloads.count, Gather(payloads.at.address, ends.address, data.address))
    bitmap, nulls = bitmap_of(device, payloads.length, payloads.count)
    return Binary(ends, data, bitmap, payloads.count, size, nulls)


def headers_of(device: Runtime, records: Records) -> tuple[Memory, Payloads, Payloads]:
    """List offsets of the headers' column (int32 of rows + 1), keys and values of the headers."""
    ends, total = ends_of(device, records.headers, records.rows)
    keys, values = (Payloads(device.empty(8 * total), device.empty(4 * total), total) for _ in range(2))
    args = Headers(records.header.address, ends.address, keys.at.address, keys.length.address, values.at.address, values.length.address)
    device.launch(headers, records.rows if total else 0, args)
    return ends, keys, values
