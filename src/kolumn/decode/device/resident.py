"""Chunks whose records stay on the GPU: what `read_pylibcudf` puts together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kolumn.decode.device.chunk import DeviceChunk
from kolumn.decode.device.part import DevicePart
from kolumn.errors import ArgumentError
from kolumn.formats.entries import Entries
from kolumn.options import Options
from kolumn.source.segments import Segment
from kolumn.source.storage import shown
from kolumn.transactions.states import ABORTED, STATES, Transactions, end_of, states_of

if TYPE_CHECKING:
    from kolumn.kernels.machine.runtime import Runtime


@dataclass(frozen=True)
class ResidentOptions(Options):
    """What a call asks for whose columns stay on the GPU.

    Attributes
    ----------
    payload : str
        "binary" or "string".
    values : kernels.value_schema.Values, optional
        How to parse values; their columns stand in place of ``value``.
    transactions : Transactions, optional
        Of the segment's partition, where the options ask what became of them.
    """

    payload: str = "binary"
    values: Any = None
    transactions: Transactions | None = None

    def of_partition(self, transactions: Transactions | None) -> "ResidentOptions":
        """The same for a partition."""
        if transactions is None:
            return self
        return replace(self, transactions=transactions, end_offset=end_of(self, transactions))

    @property
    def names(self) -> list[str]:
        """Of the columns that there will be."""
        if self.values is None:
            return list(self.columns)
        from kolumn.kernels.values.schema import VALID

        fields = [name for name, _ in self.values.fields] + [VALID]
        found = [own for name in self.columns for own in (fields if name == "value" else [name])]
        twice = {name for name in found if found.count(name) > 1}
        if twice:
            raise ArgumentError(f"two columns would be called {', '.join(sorted(twice))}: name others in columns")
        return found

    def typed_without_rows(self, device: "Runtime") -> dict[str, Any]:
        """Columns that values are parsed into, by their names, of no values."""
        if self.values is None:
            return {}
        from kolumn.kernels.fields.decoded import DevicePayloads
        from kolumn.kernels.values.columns import parsed

        return parsed(device, DevicePayloads(device.empty(0), device.empty(0), 0), self.values)


class ResidentChunk(DeviceChunk):
    """As `DeviceChunk`, but nothing is copied back."""

    def runs(self, entries: Entries, need_key: bool, alone: bool = True) -> Iterator[tuple["ResidentRun", Entries]]:
        """As `on_host.HostChunk.runs`."""
        for some, part in self.parts(entries):
            yield ResidentRun(part), some

    @staticmethod
    def batch(run: "ResidentRun", entries: Entries, segment: Segment, options: Options) -> Any:
        """`kernels.table.DeviceTable` of what the options ask for."""
        from kolumn.kernels.columns.keep import EVERY_ROW, HIGHEST, LOWEST, RowLimits
        from kolumn.kernels.columns.table import TableBuilder
        from kolumn.kernels.values.columns import parsed

        assert isinstance(options, ResidentOptions)

        def limit(value: int | None, otherwise: int) -> int:
            return otherwise if value is None else value

        limits = RowLimits(
            limit(options.start_offset, LOWEST), limit(options.end_offset, HIGHEST),
            limit(options.start_timestamp, LOWEST), limit(options.end_timestamp, HIGHEST), int(options.include_control),
        )  # fmt: skip
        constants: dict[str, Any] = {
            "topic": None if segment.topic is None else shown(segment.topic),
            "partition": segment.partition,
            "segment": shown(segment.path),
        }
        text, dropped = options.payload == "string", None
        # Headers tell of batches whether they are control batches; in drafts single messages are.
        mixed = run.part.records.attributes is not None or bool(entries.control.any())
        keeps_all = limits == EVERY_ROW or (limits._replace(include_control=1) == EVERY_ROW and not mixed)
        if options.transactions is not None:
            constants["transaction"] = states_of(options.transactions, entries[run.part.good])
            dropped = constants["transaction"] == ABORTED if options.isolation_level == "read_committed" else None
        built = TableBuilder(run.part.device, run.part.records, constants, text, None if keeps_all else limits, dropped, STATES)
        made = built.table([name for name in options.columns if options.values is None or name != "value"])
        if options.values is not None and "value" in options.columns:
            made = made.replaced(options.names, parsed(built.device, built.records.value, options.values))
        run.part.device.synchronize()
        return made


class ResidentRun:
    """Records of a part, until they become a table."""

    def __init__(self, part: DevicePart) -> None:
        self.part, self.found, self.bytes = part, part.found, part.bytes

    @property
    def rows(self) -> int:
        """How many records there are."""
        return int(self.part.records.rows)
