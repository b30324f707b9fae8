"""A segment in Aiven's tier as a file: bytes by range, from chunks that are fetched together, decrypted and decompressed in threads."""

import logging
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import zstandard
from pyarrow import ArrowException

from kolumn.errors import KolumnError, MissingError
from kolumn.source import storage
from kolumn.source.aiven_manifest import Manifest
from kolumn.source.data_keys import KeyFiles, unwrap
from kolumn.source.read_ahead import AHEAD_BYTES, fetched, open_ranges

logger = logging.getLogger(__name__)
_IV, _TAG = 12, 16
_KEPT_BYTES = 16 << 20
"""Decoded chunks that are kept: reads end inside of chunks."""
_HOLE = b"\xff"
"""Fills what cannot be read: no entry's length, and no preallocated space."""


@dataclass(frozen=True)
class Access:
    """How segments far away are opened.

    Attributes
    ----------
    keys : KeyFiles, optional
        Private keys of a tier.
    holes : bool
        Whether chunks of a tier that cannot be read are holes instead of errors.
    ahead_bytes : int
        Bytes of a file that are fetched before they are asked for.
    """

    keys: KeyFiles | None = None
    holes: bool = False
    ahead_bytes: int = AHEAD_BYTES


class _UnreadableError(KolumnError):
    """A chunk is not what was written."""


class AivenFile:
    """The bytes of a segment as the broker had them.

    Parameters
    ----------
    manifest : Manifest
    access : Access
        With ``holes``, bytes of chunks that are missing or were changed are 0xff, which damage handling crosses, and a warning is logged.

    Raises
    ------
    ArgumentError, KolumnError
        As `kolumn.source.data_keys.unwrap`; or the object is missing.
    """

    def __init__(self, manifest: Manifest, access: Access) -> None:
        self.manifest, self.access = manifest, access
        self._cipher: Any = None if manifest.encryption is None else self._unwrapped()
        self._object: Any = None
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._reported: set[int] = set()
        self._lock = Lock()
        if manifest.size and storage.look(manifest.object_name) is None:
            text = f"{manifest.object_name}: missing: {manifest.name} says that it has {manifest.borders[-1]} bytes"
            if not access.holes:
                raise KolumnError(text)
            logger.warning("%s: all %d bytes of the segment are left out", text, manifest.size)
            self._reported.update(range(len(manifest.borders)))
        elif manifest.size:
            self._object = open_ranges(manifest.object_name)

    def _unwrapped(self) -> Any:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise MissingError(f"{self.manifest.name}: encrypted: {error}: pip install 'kolumn[tiered]'") from error
        encryption = self.manifest.encryption
        assert encryption is not None
        return AESGCM(unwrap(encryption.key_id, encryption.wrapped, self.access.keys, self.manifest.name))

    def close(self) -> None:
        """Close the object."""
        if self._object is not None:
            self._object.close()

    def read_at(self, size: int, start: int) -> bytes:
        """Bytes [start, start + size) of the segment, less at its end.

        Raises
        ------
        KolumnError
            A chunk cannot be fetched, or is not what was written: with the object, the chunk and the bytes.
        """
        end = min(start + size, self.manifest.size)
        if start >= end:
            return b""
        first, last = start // self.manifest.chunk_size, (end - 1) // self.manifest.chunk_size
        found = b"".join(self._chunks(first, last))
        skipped = start - first * self.manifest.chunk_size
        return found[skipped : skipped + end - start]

    def _chunks(self, first: int, last: int) -> list[bytes]:
        with self._lock:
            known = {chunk: self._kept[chunk] for chunk in range(first, last + 1) if chunk in self._kept}
        missing = [chunk for chunk in range(first, last + 1) if chunk not in known]
        if missing:
            stored = self._fetched(missing[0], missing[-1])
            begin = self.manifest.borders[missing[0]]
            parts = [stored[self.manifest.borders[chunk] - begin : self.manifest.borders[chunk + 1] - begin] for chunk in missing]
            decoded = map(self._decoded, missing, parts) if len(missing) == 1 else _pool(os.getpid()).map(self._decoded, missing, parts)
            known.update(zip(missing, decoded, strict=True))
            self._keep(missing, known)
        return [known[chunk] for chunk in range(first, last + 1)]

    def _keep(self, chunks: list[int], known: dict[int, bytes]) -> None:
        with self._lock:
            for chunk in chunks:
                self._kept[chunk] = known[chunk]
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _KEPT_BYTES:
                self._kept.popitem(last=False)

    def _fetched(self, first: int, last: int) -> memoryview:
        """Neighbouring chunks as they are stored, by one request."""
        if self._object is None:
            return memoryview(b"")
        start, end = self.manifest.borders[first], self.manifest.borders[last + 1]
        try:
            return memoryview(fetched(self._object, start, end))
        except (OSError, ArrowException) as error:
            raise KolumnError(f"{self.manifest.object_name}: bytes {start} to {end} cannot be read: {error}") from error

    def _decoded(self, chunk: int, stored: memoryview) -> bytes:
        start, end = self.manifest.span(chunk)
        try:
            return self._checked(chunk, stored, end - start)
        except _UnreadableError as error:
            low, high = self.manifest.borders[chunk : chunk + 2]
            text = f"{self.manifest.object_name}: chunk {chunk}, bytes {low} to {high} (bytes {start} to {end} of the segment): {error}"
            if not self.access.holes:
                raise KolumnError(text) from error
            if chunk not in self._reported:
                self._reported.add(chunk)
                logger.warning("%s: its bytes are left out", text)
            return _HOLE * (end - start)

    def _checked(self, chunk: int, stored: memoryview, size: int) -> bytes:
        low, high = self.manifest.borders[chunk : chunk + 2]
        if len(stored) != high - low:
            raise _UnreadableError(f"expected {high - low} bytes, found {len(stored)}: the object is missing or was cut")
        data: bytes | memoryview = stored
        if self._cipher is not None:
            data = self._decrypted(stored)
        if self.manifest.compressed:
            data = _decompressed(data, size)
        if len(data) != size:
            raise _UnreadableError(f"expected {size} bytes of the segment, found {len(data)}")
        return bytes(data)

    def _decrypted(self, stored: memoryview) -> bytes:
        from cryptography.exceptions import InvalidTag

        assert self.manifest.encryption is not None
        if len(stored) < _IV + _TAG:
            raise _UnreadableError(f"expected at least {_IV + _TAG} bytes of AES-GCM, found {len(stored)}")
        try:
            return bytes(self._cipher.decrypt(bytes(stored[:_IV]), stored[_IV:], self.manifest.encryption.aad))
        except InvalidTag:
            raise _UnreadableError("the tag of AES-GCM is wrong: bytes were changed, or the manifest is that of another object") from None


def _decompressed(data: bytes | memoryview, size: int) -> bytes:
    try:
        if zstandard.frame_content_size(data) != size:
            raise _UnreadableError(f"expected a zstd frame of {size} bytes, found another size in it")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise _UnreadableError(f"expected a zstd frame: {error}") from error


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of the one that it was forked from are not there."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="kolumn-tier")
