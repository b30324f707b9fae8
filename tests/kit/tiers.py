"""Tiers as Kafka's LocalTieredStorage and Aiven's tiered-storage write them, from the folder of a broker's log or from batches."""

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import zstandard
from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import kolumn


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


class Aiven:
    """A writer of Aiven's layout: chunks of any size, with or without compression and encryption by a new key of its own.

    Wrapping is the reverse of what `kolumn.source.tier_file` does; only Aiven's own files prove that both are right.
    """

    def __init__(self, root: Path, chunk: int, *, zstd: bool = False, key: str | None = None, variable: bool | None = None) -> None:
        self.root, self.chunk, self.zstd, self.key = root, chunk, zstd, key
        self.variable = zstd if variable is None else variable
        self.private = None if key is None else RSA.generate(2048)

    def keys(self) -> dict[str, Path] | None:
        """The option ``keys`` of reads."""
        return None if self.key is None else {self.key: self.key_file()}

    def key_file(self) -> Path:
        assert self.private is not None
        path = self.root / "private.pem"
        path.write_bytes(self.private.export_key(pkcs=8))
        return path

    def put(
        self, data: bytes, topic: str, partition: int, first: int, last: int, epochs: dict[str, int] | None = None,
        indexes: dict[str, bytes] | None = None,
    ) -> Path:  # fmt: skip
        """Write a segment; returns its manifest. ``indexes`` are by their names there: "offset", "timestamp", …"""
        data_key, aad = os.urandom(32), os.urandom(32)

        def sealed(part: bytes) -> bytes:
            return part if self.key is None else (iv := os.urandom(12)) + AESGCM(data_key).encrypt(iv, part, aad)

        parts = [data[at : at + self.chunk] for at in range(0, len(data), self.chunk)]
        if self.zstd:
            parts = [zstandard.ZstdCompressor().compress(part) for part in parts]
        parts = list(map(sealed, parts))
        folder = self.root / f"{topic}-{uuid_of(topic)}" / str(partition)
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / f"{first:020d}-{uuid_of(f'{topic}{partition}{first}')}"
        Path(f"{stem}.log").write_bytes(b"".join(parts))
        index: dict[str, Any] = {"type": "fixed", "originalChunkSize": self.chunk, "originalFileSize": len(data)}
        if self.variable:
            index |= {"type": "variable", "transformedChunks": b64(zstandard.ZstdCompressor().compress(_sizes(list(map(len, parts)))))}
        else:
            index |= {"transformedChunkSize": len(parts[0]) if parts else 0, "finalTransformedChunkSize": len(parts[-1]) if parts else 0}
        places: dict[str, Any] = dict.fromkeys(("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction"))
        stored = b""
        for name, part in ((name, sealed(part)) for name, part in (indexes or {}).items()):
            places[name] = {"position": len(stored), "size": len(part)}
            stored += part
        Path(f"{stem}.indexes").write_bytes(stored)
        place = {"topicId": uuid_of(topic), "topicPartition": {"topic": topic, "partition": partition}}
        ids = {"topicIdPartition": place, "id": stem.name[21:]}
        metadata = {"remoteLogSegmentId": ids, "startOffset": first, "endOffset": last, "segmentLeaderEpochs": epochs or {"0": 0}}
        manifest: dict[str, Any] = {"version": "1", "chunkIndex": index, "segmentIndexes": places, "compression": self.zstd}
        if self.private is not None:
            wrapped = PKCS1_OAEP.new(self.private, SHA3_512).encrypt(data_key)
            manifest["encryption"] = {"dataKey": f"{self.key}:{b64(wrapped)}", "aad": b64(aad)}
        path = Path(f"{stem}.rsm-manifest")
        path.write_text(json.dumps({**manifest, "remoteLogSegmentMetadata": metadata, "unknown": 1}))
        return path


def aiven_of(folder: Path, root: Path, chunk: int, *, indexes: bool = False, **how: Any) -> tuple[Aiven, dict[str, Path] | None]:
    """A broker's log as Aiven's tier, all segments of it, and its keys; ``indexes`` has the snapshot of each segment's end too."""
    root.mkdir(parents=True, exist_ok=True)
    made, logs = Aiven(root, chunk, **how), sorted(folder.glob("*.log"))
    topic, _, partition = folder.name.rpartition("-")
    ends = [*(int(log.stem) - 1 for log in logs[1:]), kolumn.batches(folder)["lastOffset"][-1].as_py()]
    for log, last in zip(logs, ends, strict=True):
        sides = {"offset": ".index", "timestamp": ".timeindex", "transaction": ".txnindex"} if indexes else {}
        files = {name: log.with_suffix(suffix) for name, suffix in sides.items()}
        if indexes:
            files["producerSnapshot"] = log.with_name(f"{last + 1:020d}.snapshot")
        stored = {name: path.read_bytes() for name, path in files.items() if path.exists()}
        made.put(log.read_bytes(), topic, int(partition), int(log.stem), last, indexes=stored)
    return made, made.keys()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _sizes(sizes: list[int]) -> bytes:
    head = len(sizes).to_bytes(4, "big")
    if len(sizes) < 2:
        return head + b"".join(size.to_bytes(4, "big") for size in sizes)
    base, spread = min(sizes[:-1]), max(sizes[:-1]) - min(sizes[:-1])
    width = max(1, (spread.bit_length() + 7) // 8)
    rest = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    return head + base.to_bytes(4, "big") + bytes([width]) + rest + sizes[-1].to_bytes(4, "big")
