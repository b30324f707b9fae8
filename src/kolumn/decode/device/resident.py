"""Chunks whose records stay on the GPU: what `read_pylibcudf` puts together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kolumn.core.lost import LostValues
from kolumn.core.text import in_column
from kolumn.decode.device.chunk import ChunkOnDevice, DevicePart
from kolumn.decode.host.aborted import STATES, Transactions, end_of, left_out, states_of
from kolumn.formats.entries import Entries, Lost
from kolumn.options import Options
from kolumn.source.segments import Segment
from kolumn.values.typed import schema_of

if TYPE_CHECKING:
    from kolumn.kernels.columns.table import DeviceTable
    from kolumn.kernels.fields.records import DeviceRecords
    from kolumn.kernels.machine.runtime import Runtime


@dataclass(frozen=True)
class ResidentOptions(Options):
    """What a call asks for whose columns stay on the GPU.

    ``asked`` are the columns that the call asks for, ``columns`` the record columns that they are made of. ``values`` say how typed columns
    are decoded (`kernels.values.columns.Values`), ``transactions`` are those of the segment's partition, where the options ask for them.
    """

    payload: str = "binary"
    asked: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    transactions: Transactions | None = None

    @property
    def names(self) -> list[str]:
        """Of the columns that there will be."""
        return schema_of(self.asked, self.binary, [values.typed for values in self.values]).names

    @property
    def stored_names(self) -> list[str]:
        """Of the columns that are record columns as they are."""
        typed = {name for values in self.values for name in values.names}
        return [name for name in self.asked if name not in typed]

    def typed_columns(self, device: "Runtime", records: "DeviceRecords | None") -> tuple[dict[str, Any], LostValues]:
        """The other columns, by their names, and what was lost of them; ``records`` is None for no rows."""
        from kolumn.kernels.values import columns

        typed, lost = dict[str, Any](), LostValues()
        for values in self.values:
            typed |= columns.typed_columns(device, records, values, self.asked, self.payload, lost)
        return typed, lost


class ResidentRun:
    """Records of a part, until they become a table."""

    def __init__(self, part: DevicePart) -> None:
        self.part, self.found, self.bytes, self.rows = part, part.found, part.bytes, int(part.records.rows)

    @property
    def lost(self) -> dict[int, Lost]:
        """As `decode.host.run.Run.lost`."""
        return {i: part.lost for i, part in self.part.parts.items()}


class ResidentPart(NamedTuple):
    """A run and its entries."""

    run: ResidentRun
    entries: Entries

    def batch(self, segment: Segment, options: Options) -> "DeviceTable":
        """What the options ask for, on the device."""
        from kolumn.kernels.columns.rows import EVERY_ROW, HIGHEST, LOWEST, RowLimits
        from kolumn.kernels.columns.table import TableBuilder

        assert isinstance(options, ResidentOptions)
        part = self.run.part
        starts = (LOWEST if start is None else start for start in (options.start_offset, options.start_timestamp))
        ends = (HIGHEST if end is None else end for end in (options.end_offset, options.end_timestamp))
        (offset, timestamp), (end_offset, end_timestamp) = starts, ends
        limits = RowLimits(offset, end_offset, timestamp, end_timestamp, int(options.include_control))
        constants: dict[str, Any] = {
            "topic": None if segment.topic is None else in_column(segment.topic),
            "partition": segment.partition,
            "segment": in_column(segment.path),
        }
        dropped = None
        # Headers tell of batches whether they are control batches; in drafts single messages are.
        mixed = part.records.attributes is not None or bool(self.entries.control.any())
        keeps_all = limits == EVERY_ROW or (limits._replace(include_control=1) == EVERY_ROW and not mixed)
        if options.transactions is not None:
            constants["transaction"] = states_of(options.transactions, self.entries[part.good])
            dropped = left_out(constants["transaction"], options)
        kept, text = None if keeps_all else limits, options.payload == "string"
        built = TableBuilder(part.device, part.records, constants, text, kept, dropped, STATES)
        table = built.table(options.stored_names)
        if options.values:
            table = table.replaced(options.names, *options.typed_columns(built.device, built.records))
        part.device.synchronize()
        return table


class ResidentChunk(ChunkOnDevice):
    """As `DeviceChunk`, but nothing is copied back, so that parts can be larger: tables that are joined later are copied."""

    most_bytes = 512 << 20

    @staticmethod
    def settled(options: Options, transactions: Transactions) -> tuple[Options, Transactions | None]:
        """As `decode.chunk.HostChunk.settled`: transactions are settled on the GPU, where the columns are."""
        assert isinstance(options, ResidentOptions)
        return replace(options, transactions=transactions, end_offset=end_of(options, transactions)), None

    def runs(self, entries: Entries, need_key: bool, alone: bool = True) -> Iterator[ResidentPart]:
        """As `decode.chunk.HostChunk.runs`."""
        for some, part in self.parts(entries):
            yield ResidentPart(ResidentRun(part), some)
