"""Raw Apache Kafka log segments in, columns out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kolumn.core.errors import (
    ArgumentError,
    CorruptBatchError,
    FormatError,
    KolumnError,
    LimitError,
    MissingError,
    NoMemoryError,
    PayloadError,
)

if TYPE_CHECKING:
    from kolumn.cpu_fallback.machine.compile_ahead import Warmup, warmup
    from kolumn.damage.findings import Damage, Skipped
    from kolumn.log.index_files import side_files
    from kolumn.readers.api import batches, read, scan, verify
    from kolumn.readers.explain import ReadExplanation, explain
    from kolumn.readers.gpu import read_cudf, read_pylibcudf, scan_cudf, scan_pylibcudf
    from kolumn.readers.polars import scan_polars
    from kolumn.readers.verified import Report
    from kolumn.tools.broker_folders import Rebuilt, rebuild_index
    from kolumn.tools.coordinators import groups, open_transactions
    from kolumn.tools.recover import Recovery, recover
    from kolumn.tools.sizes import Space, space
    from kolumn.writers.compaction.compact import Cleaning, Compaction, clean, compact
    from kolumn.writers.conversion.broker import assign_offsets, for_fetch, mirror
    from kolumn.writers.conversion.convert import Conversion, convert, losses
    from kolumn.writers.outgoing import Leftover, tidy
    from kolumn.writers.write import write

__version__ = "0.1.0"
__all__ = [
    "ArgumentError",
    "Cleaning",
    "Compaction",
    "Conversion",
    "CorruptBatchError",
    "Damage",
    "FormatError",
    "KolumnError",
    "Leftover",
    "LimitError",
    "MissingError",
    "NoMemoryError",
    "PayloadError",
    "ReadExplanation",
    "Rebuilt",
    "Recovery",
    "Report",
    "Skipped",
    "Space",
    "Warmup",
    "assign_offsets",
    "batches",
    "clean",
    "compact",
    "convert",
    "explain",
    "for_fetch",
    "groups",
    "losses",
    "mirror",
    "open_transactions",
    "read",
    "read_cudf",
    "read_pylibcudf",
    "rebuild_index",
    "recover",
    "scan",
    "scan_cudf",
    "scan_polars",
    "scan_pylibcudf",
    "side_files",
    "space",
    "tidy",
    "verify",
    "warmup",
    "write",
]

_LAZY = {
    "read": "kolumn.readers.api",
    "scan": "kolumn.readers.api",
    "batches": "kolumn.readers.api",
    "verify": "kolumn.readers.api",
    "explain": "kolumn.readers.explain",
    "ReadExplanation": "kolumn.readers.explain",
    "write": "kolumn.writers.write",
    "assign_offsets": "kolumn.writers.conversion.broker",
    "for_fetch": "kolumn.writers.conversion.broker",
    "mirror": "kolumn.writers.conversion.broker",
    "clean": "kolumn.writers.compaction.compact",
    "Cleaning": "kolumn.writers.compaction.compact",
    "space": "kolumn.tools.sizes",
    "Space": "kolumn.tools.sizes",
    "compact": "kolumn.writers.compaction.compact",
    "Compaction": "kolumn.writers.compaction.compact",
    "convert": "kolumn.writers.conversion.convert",
    "losses": "kolumn.writers.conversion.convert",
    "Conversion": "kolumn.writers.conversion.convert",
    "groups": "kolumn.tools.coordinators",
    "rebuild_index": "kolumn.tools.broker_folders",
    "Rebuilt": "kolumn.tools.broker_folders",
    "recover": "kolumn.tools.recover",
    "Recovery": "kolumn.tools.recover",
    "side_files": "kolumn.log.index_files",
    "open_transactions": "kolumn.tools.coordinators",
    "read_cudf": "kolumn.readers.gpu",
    "read_pylibcudf": "kolumn.readers.gpu",
    "scan_cudf": "kolumn.readers.gpu",
    "scan_pylibcudf": "kolumn.readers.gpu",
    "scan_polars": "kolumn.readers.polars",
    "Report": "kolumn.readers.verified",
    "tidy": "kolumn.writers.outgoing",
    "Leftover": "kolumn.writers.outgoing",
    "Damage": "kolumn.damage.findings",
    "Skipped": "kolumn.damage.findings",
    "warmup": "kolumn.cpu_fallback.machine.compile_ahead",
    "Warmup": "kolumn.cpu_fallback.machine.compile_ahead",
}


def __getattr__(name: str) -> Any:
    """Load the decoder when it is first used, so that importing the package is fast."""
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kolumn' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names; those that have not been used yet are not in the module's dictionary."""
    return sorted([*__all__, "__version__"])
