"""Raw Apache Kafka log segments in, columns out."""

from importlib import import_module
from operator import attrgetter
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
    from kolumn import broker as broker
    from kolumn import schema as schema
    from kolumn.cpu_fallback.machine.compile_ahead import Warmup, warmup
    from kolumn.damage.findings import Damage, Skipped
    from kolumn.damage.stopped import StoppedAt
    from kolumn.log.index_files import side_files
    from kolumn.readers.api import batches, read, scan, verify
    from kolumn.readers.explain import ReadExplanation, explain
    from kolumn.readers.follow import follow
    from kolumn.readers.gpu import read_cudf, read_pylibcudf, scan_cudf, scan_pylibcudf
    from kolumn.readers.polars import scan_polars, topics
    from kolumn.readers.verified import Report
    from kolumn.tools.append import Appended, append
    from kolumn.tools.auditing.audit import Audit, audit
    from kolumn.tools.broker_folders import Rebuilt, rebuild_index
    from kolumn.tools.comparing.diff import Difference, diff
    from kolumn.tools.coordinators import groups, open_transactions
    from kolumn.tools.history import history
    from kolumn.tools.latest import latest
    from kolumn.tools.recover import Recovery, recover
    from kolumn.tools.sizes import Space, space
    from kolumn.writers.outgoing import Leftover, tidy
    from kolumn.writers.rewriting.compact import Compaction, Retention, apply_retention, compact
    from kolumn.writers.rewriting.convert import Conversion, convert, losses
    from kolumn.writers.rewriting.erase import Erasure, erase
    from kolumn.writers.write import write

__version__ = "0.1.0"
__all__ = [
    "Appended",
    "ArgumentError",
    "Audit",
    "Compaction",
    "Conversion",
    "CorruptBatchError",
    "Damage",
    "Difference",
    "Erasure",
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
    "Retention",
    "Skipped",
    "Space",
    "StoppedAt",
    "Warmup",
    "append",
    "apply_retention",
    "audit",
    "batches",
    "compact",
    "convert",
    "diff",
    "erase",
    "explain",
    "follow",
    "groups",
    "history",
    "latest",
    "losses",
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
    "topics",
    "verify",
    "warmup",
    "write",
]

_MODULES = {
    "cpu_fallback.machine.compile_ahead": ("Warmup", "warmup"),
    "damage.findings": ("Damage", "Skipped"),
    "damage.stopped": ("StoppedAt",),
    "log.index_files": ("side_files",),
    "readers.api": ("batches", "read", "scan", "verify"),
    "readers.explain": ("ReadExplanation", "explain"),
    "readers.follow": ("follow",),
    "readers.gpu": ("read_cudf", "read_pylibcudf", "scan_cudf", "scan_pylibcudf"),
    "readers.polars": ("scan_polars", "topics"),
    "readers.verified": ("Report",),
    "tools.append": ("Appended", "append"),
    "tools.auditing.audit": ("Audit", "audit"),
    "tools.broker_folders": ("Rebuilt", "rebuild_index"),
    "tools.coordinators": ("groups", "open_transactions"),
    "tools.history": ("history",),
    "tools.latest": ("latest",),
    "tools.comparing.diff": ("Difference", "diff"),
    "tools.recover": ("Recovery", "recover"),
    "tools.sizes": ("Space", "space"),
    "writers.rewriting.compact": ("Compaction", "Retention", "apply_retention", "compact"),
    "writers.rewriting.convert": ("Conversion", "convert", "losses"),
    "writers.rewriting.erase": ("Erasure", "erase"),
    "writers.outgoing": ("Leftover", "tidy"),
    "writers.write": ("write",),
}
_LAZY = {name: f"kolumn.{module}" for module, names in _MODULES.items() for name in names}
_RENAMED = {
    "Cleaning": "Retention",
    "clean": "apply_retention",
    **{name: f"broker.{name}" for name in ("assign_offsets", "for_fetch", "mirror")},
}
"""Names of version 0.1, which warn."""


def __getattr__(name: str) -> Any:
    """Load the decoder when it is first used, so that importing the package is fast."""
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    if name in ("broker", "schema"):
        return import_module(f"kolumn.{name}")
    if name in _RENAMED:
        import_module("kolumn.core.keywords").warn_renamed(f"kolumn.{name}", f"kolumn.{_RENAMED[name]}")
        return attrgetter(_RENAMED[name])(import_module("kolumn"))
    raise AttributeError(f"module 'kolumn' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names; those that have not been used yet are not in the module's dictionary."""
    return sorted([*__all__, "__version__", "broker", "schema"])
