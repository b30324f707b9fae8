"""Records of a log with what became of their transactions, by the independent reader and a walk over all of them."""

from collections.abc import Iterable
from pathlib import Path

from kit import oracle


def settled(rows: Iterable[oracle.Row]) -> list[tuple[oracle.Row, str]]:
    """Each row, in the order of offsets, with "none", "committed", "aborted" or "open"; a marker has the state of what it ends."""
    ordered = sorted(rows, key=lambda row: row.offset)
    states, begun = list[str](), dict[int, list[int]]()
    for i, row in enumerate(ordered):
        states.append("open" if row.isTransactional else "none")
        if not row.isTransactional:
            continue
        begun.setdefault(row.producerId, []).append(i)
        if row.isControl:
            for j in begun.pop(row.producerId):
                states[j] = ("aborted", "committed")[row.key[3]]
    return list(zip(ordered, states, strict=True))


def in_folder(folder: Path) -> list[tuple[oracle.Row, str]]:
    """Those of a topic-partition's segments."""
    return settled(row for path in folder.glob("*.log") for row in oracle.read(path.read_bytes()).rows())
