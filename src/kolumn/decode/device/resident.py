"""Chunks whose records stay on the GPU: what `read_pylibcudf` puts together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kolumn.core.text import in_column
from kolumn.damage.findings import Lost
from kolumn.decode.device.chunk import ChunkOnDevice
from kolumn.decode.device.part import DevicePart
from kolumn.formats.entries import Entries
from kolumn.log.aborted import ABORTED, STATES, Transactions, end_of, states_of
from kolumn.options import Options
from kolumn.source.segments import Segment
from kolumn.values.stage import schema_of

if TYPE_CHECKING:
    from kolumn.kernels.columns.table import DeviceTable
    from kolumn.kernels.fields.records import DeviceRecords
    from kolumn.kernels.machine.runtime import Runtime


@dataclass(frozen=True)
class ResidentOptions(Options):
    """What a call asks for whose columns stay on the GPU.

    Attributes
    ----------
    payload : str
        "binary" or "string".
    asked : tuple of str
        The columns that the call asks for; ``columns`` are record columns that they are made of.
    values : tuple of kernels.values.schema.Values
        How typed columns are decoded.
    transactions : Transactions, optional
        Of the segment's partition, where the options ask what became of them.
    """

    payload: str = "binary"
    asked: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    transactions: Transactions | None = None

    def of_partition(self, transactions: Transactions | None) -> "ResidentOptions":
        """The same for a partition."""
        if transactions is None:
            return self
        return replace(self, transactions=transactions, end_offset=end_of(self, transactions))

    @property
    def names(self) -> list[str]:
        """Of the columns that there will be."""
        return schema_of(self.asked, self.binary, [one.typed for one in self.values]).names

    @property
    def stored_names(self) -> list[str]:
        """Of the columns that are record columns as they are."""
        typed = {name for one in self.values for name in one.names}
        return [name for name in self.asked if name not in typed]

    def typed_columns(self, device: "Runtime", records: "DeviceRecords | None") -> dict[str, Any]:
        """The other columns, by their names; ``records`` is None for no rows."""
        from kolumn.kernels.values import columns

        found: dict[str, Any] = {}
        for one in self.values:
            found |= columns.typed_columns(device, records, one, self.asked, self.payload)
        return found


class ResidentRun:
    """Records of a part, until they become a table."""

    def __init__(self, part: DevicePart) -> None:
        self.part, self.found, self.bytes = part, part.found, part.bytes

    @property
    def lost(self) -> dict[int, Lost]:
        """As `decode.host.run.Run.lost`."""
        return {i: part.lost for i, part in self.part.parts.items()}

    @property
    def rows(self) -> int:
        """How many records there are."""
        return int(self.part.records.rows)


class ResidentPart(NamedTuple):
    """A run and its entries."""

    run: ResidentRun
    entries: Entries

    def batch(self, segment: Segment, options: Options) -> "DeviceTable":
        """What the options ask for, on the device."""
        from kolumn.kernels.columns.keep import EVERY_ROW, HIGHEST, LOWEST, RowLimits
        from kolumn.kernels.columns.table import TableBuilder

        assert isinstance(options, ResidentOptions)

        def limit(value: int | None, otherwise: int) -> int:
            return otherwise if value is None else value

        limits = RowLimits(
            limit(options.start_offset, LOWEST), limit(options.end_offset, HIGHEST),
            limit(options.start_timestamp, LOWEST), limit(options.end_timestamp, HIGHEST), int(options.include_control),
        )  # fmt: skip
        constants: dict[str, Any] = {
            "topic": None if segment.topic is None else in_column(segment.topic),
            "partition": segment.partition,
            "segment": in_column(segment.path),
        }
        text, dropped = options.payload == "string", None
        # Headers tell of batches whether they are control batches; in drafts single messages are.
        mixed = self.run.part.records.attributes is not None or bool(self.entries.control.any())
        keeps_all = limits == EVERY_ROW or (limits._replace(include_control=1) == EVERY_ROW and not mixed)
        if options.transactions is not None:
            constants["transaction"] = states_of(options.transactions, self.entries[self.run.part.good])
            dropped = constants["transaction"] == ABORTED if options.isolation_level == "read_committed" else None
        built = TableBuilder(self.run.part.device, self.run.part.records, constants, text, None if keeps_all else limits, dropped, STATES)
        made = built.table(options.stored_names)
        if options.values:
            made = made.replaced(options.names, options.typed_columns(built.device, built.records))
        self.run.part.device.synchronize()
        return made


class ResidentChunk(ChunkOnDevice):
    """As `DeviceChunk`, but nothing is copied back."""

    @staticmethod
    def settled(options: Options, transactions: Transactions | None) -> tuple[Options, Transactions | None]:
        """As `decode.decoder.ChunkDecoder.settled`: transactions are settled on the GPU, where the columns are."""
        assert isinstance(options, ResidentOptions)
        return options.of_partition(transactions), None

    def runs(self, entries: Entries, need_key: bool, alone: bool = True) -> Iterator[ResidentPart]:
        """As `decode.decoder.ChunkDecoder.runs`."""
        for some, part in self.parts(entries):
            yield ResidentPart(ResidentRun(part), some)
