"""Tiers as Kafka's LocalTieredStorage writes them, from the folder of a broker's log or from batches."""

import base64
import hashlib
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path


def uuid_of(text: str) -> str:
    """A made-up id with Kafka's spelling."""
    return base64.urlsafe_b64encode(hashlib.md5(text.encode()).digest()).decode().rstrip("=")


def tier_of(folder: Path, root: Path, bases: Sequence[int] | None = None) -> Path:
    """Copy closed segments of a broker's folder, all or those with these base offsets. The copy's snapshot is that of its end."""
    topic, _, partition = folder.name.rpartition("-")
    target = root / f"{topic}-{partition}-{uuid_of(topic)}"
    target.mkdir(parents=True, exist_ok=True)
    logs = sorted(folder.glob("*.log"))
    for log, following in pairwise(logs):
        if bases is not None and int(log.stem) not in bases:
            continue
        stem = target / f"{log.stem}-{uuid_of(log.stem)}"
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            if (side := log.with_suffix(suffix)).exists() and (suffix != ".txnindex" or side.stat().st_size):
                shutil.copy(side, f"{stem}{suffix}")
        if (snapshot := following.with_suffix(".snapshot")).exists():
            shutil.copy(snapshot, f"{stem}.snapshot")
        if (epochs := folder / "leader-epoch-checkpoint").exists():
            shutil.copy(epochs, f"{stem}.leader_epoch_checkpoint")
    return target


def put(folder: Path, base: int, batches: Sequence[bytes], epochs: Sequence[tuple[int, int]] = (), name: str = "") -> Path:
    """Write a segment of a tier; ``name`` tells its id from those of other copies."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{base:020d}-{uuid_of(f'{base}{name}')}"
    Path(f"{stem}.log").write_bytes(b"".join(batches))
    if epochs:
        Path(f"{stem}.leader_epoch_checkpoint").write_text(checkpoint(epochs))
    return Path(f"{stem}.log")


def checkpoint(epochs: Sequence[tuple[int, int]]) -> str:
    """Text of a file of leader epochs."""
    return f"0\n{len(epochs)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in epochs)
