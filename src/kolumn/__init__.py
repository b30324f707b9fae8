"""Raw Apache Kafka log segments in, columns out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kolumn.errors import ArgumentError, CorruptBatchError, FormatError, KolumnError, LimitError, MissingError, NoMemoryError, PayloadError

if TYPE_CHECKING:
    from kolumn.accounting.formats import Space, space
    from kolumn.api import batches, read, scan, verify
    from kolumn.commit.leftovers import Leftover, tidy
    from kolumn.compaction.by_age import Cleaning, clean
    from kolumn.compaction.compact import Compaction, compact
    from kolumn.conversion.broker import assign_offsets, for_fetch, mirror
    from kolumn.conversion.convert import Conversion, convert, losses
    from kolumn.cpu_fallback.machine.compile_ahead import Warmup, warmup
    from kolumn.damage.findings import Damage, Skipped
    from kolumn.encode.write import write
    from kolumn.explain import ReadExplanation, explain
    from kolumn.frames.polars_scan import scan_polars
    from kolumn.gpu_api import read_cudf, read_pylibcudf, scan_cudf, scan_pylibcudf
    from kolumn.index_files.rebuild import Rebuilt, rebuild_index
    from kolumn.index_files.tables import side_files
    from kolumn.internal_topics.groups import groups
    from kolumn.internal_topics.transactions import open_transactions
    from kolumn.salvage.recover import recover
    from kolumn.salvage.report import Recovery
    from kolumn.verification.report import Report

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
    "read": "kolumn.api",
    "scan": "kolumn.api",
    "batches": "kolumn.api",
    "verify": "kolumn.api",
    "explain": "kolumn.explain",
    "ReadExplanation": "kolumn.explain",
    "write": "kolumn.encode.write",
    "assign_offsets": "kolumn.conversion.broker",
    "for_fetch": "kolumn.conversion.broker",
    "mirror": "kolumn.conversion.broker",
    "clean": "kolumn.compaction.by_age",
    "Cleaning": "kolumn.compaction.by_age",
    "space": "kolumn.accounting.formats",
    "Space": "kolumn.accounting.formats",
    "compact": "kolumn.compaction.compact",
    "Compaction": "kolumn.compaction.compact",
    "convert": "kolumn.conversion.convert",
    "losses": "kolumn.conversion.convert",
    "Conversion": "kolumn.conversion.convert",
    "groups": "kolumn.internal_topics.groups",
    "rebuild_index": "kolumn.index_files.rebuild",
    "Rebuilt": "kolumn.index_files.rebuild",
    "recover": "kolumn.salvage.recover",
    "Recovery": "kolumn.salvage.report",
    "side_files": "kolumn.index_files.tables",
    "open_transactions": "kolumn.internal_topics.transactions",
    "read_cudf": "kolumn.gpu_api",
    "read_pylibcudf": "kolumn.gpu_api",
    "scan_cudf": "kolumn.gpu_api",
    "scan_pylibcudf": "kolumn.gpu_api",
    "scan_polars": "kolumn.frames.polars_scan",
    "Report": "kolumn.verification.report",
    "tidy": "kolumn.commit.leftovers",
    "Leftover": "kolumn.commit.leftovers",
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
