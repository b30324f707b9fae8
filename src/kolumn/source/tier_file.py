"""A segment in Aiven's tier as a file: bytes by range, from chunks that are fetched together, decrypted and decompressed in threads.

Data keys are unwrapped by a private RSA key, from files that the caller names. Aiven wraps with BouncyCastle's
RSA/NONE/OAEPWithSHA3-512AndMGF1Padding: OAEP (RFC 8017, 7.1.2) with SHA3-512 for the empty label and for MGF1. The package cryptography
reads key files and has AES-GCM, but refuses SHA3 in OAEP; pycryptodome does that.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import zstandard
from pyarrow import ArrowException

from kolumn.core.errors import ArgumentError, KolumnError, StorageError, shown
from kolumn.core.packages import missing_package
from kolumn.core.threads import UNPACK, shared
from kolumn.source import storage
from kolumn.source.read_ahead import AHEAD_BYTES, fetched, open_ranges
from kolumn.source.storage import is_final
from kolumn.source.tier_manifest import CIPHER_BYTES, IV_BYTES, AivenManifest

KeyFiles = tuple[tuple[str, str], ...]  # names of keys, and files with private RSA keys, as PEM or DER
WrappedKey = tuple[str, bytes]  # name of a key, and a data key that it wraps
_KEY_BYTES = (16, 24, 32)


def key_files(keys: Mapping[str, str | os.PathLike[str]] | None) -> KeyFiles | None:
    """The caller's option, checked: names of keys and paths."""
    if keys is None:
        return None
    if not isinstance(keys, Mapping) or not all(
        isinstance(name, str) and isinstance(path, str | os.PathLike) for name, path in keys.items()
    ):
        raise ArgumentError("private_keys: expected a mapping of names to files of private RSA keys, such as {'key1': 'private.pem'}")
    return tuple((name, os.fspath(path)) for name, path in keys.items())


@lru_cache(maxsize=4096)
def unwrap(key_id: str, wrapped: bytes, files: KeyFiles | None, name: str) -> bytes:
    """The data key of the segment ``name``. An ArgumentError if no file is named for the key, or it has no private RSA key; a KolumnError,
    one for all reasons, if the key is not the one that wrapped this data key, or that was changed."""
    paths = dict(files or ())
    if key_id not in paths:
        given = f"found those of {', '.join(map(repr, paths))}" if paths else "found none"
        raise ArgumentError(
            f"{name}: encrypted with key {key_id!r}: expected its private key in private_keys={{{key_id!r}: path}}, {given}"
        )
    key = _message(wrapped, key_id, paths[key_id])
    if key is None or len(key) not in _KEY_BYTES:
        raise KolumnError(
            f"{name}: the data key cannot be unwrapped with key {key_id!r} of {paths[key_id]}: it was wrapped with another key, or the "
            "manifest was changed"
        )
    return key


def renamed(wrapped: bytes, files: KeyFiles | None) -> str | None:
    """Name of the key that unwraps a data key whose name is not one of ``files``; None if none of them does."""
    return next((name for name, path in files or () if _message(wrapped, name, path) is not None), None)


def is_right(key_id: str, files: KeyFiles | None, others: Iterable[WrappedKey]) -> bool:
    """Whether a private key unwraps the data key of some other segment, so that it is the one that the caller means."""
    path = dict(files or ())[key_id]
    return any(_message(wrapped, key_id, path) is not None for name, wrapped in others if name == key_id)


def _message(wrapped: bytes, key_id: str, path: str) -> bytes | None:
    """The message, None if anything about it is wrong."""
    cipher = _private_key(key_id, path)
    with suppress(ValueError):
        return bytes(cipher.decrypt(wrapped))
    return None


@lru_cache(maxsize=32)
def _private_key(key_id: str, path: str) -> Any:
    try:
        from Crypto.Cipher import PKCS1_OAEP
        from Crypto.Hash import SHA3_512
        from Crypto.PublicKey import RSA
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key
    except ImportError as error:
        raise missing_package(f"encrypted segments: {error}", *_CRYPTOGRAPHY) from error
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 20)
        key = load_pem_private_key(data, None) if b"-----BEGIN" in data else load_der_private_key(data, None)
    except OSError as error:
        raise ArgumentError(f"private_keys: {path}, of key {key_id!r}, cannot be read: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"private_keys: {path}, of key {key_id!r}, is no private key in PEM or DER without a password: {error}"
        ) from error
    if not isinstance(key, RSAPrivateKey):
        raise ArgumentError(f"private_keys: {path}, of key {key_id!r}, is not a private RSA key")
    numbers = key.private_numbers()
    public = numbers.public_numbers
    # The package cryptography has checked the numbers.
    private = RSA.construct((public.n, public.e, numbers.d, numbers.p, numbers.q), consistency_check=False)
    sha3: Any = SHA3_512
    return PKCS1_OAEP.new(private, hashAlgo=sha3)


logger = logging.getLogger(__name__)
_KEPT_BYTES = 16 << 20  # decoded chunks that are kept: reads end inside of chunks
_CRYPTOGRAPHY = "cryptography", "pycryptodome"
_HOLE = b"\xff"  # fills what cannot be read: no entry's length, and no preallocated space
_SAMPLES = 4  # data keys of each private key that are tried if another one cannot be unwrapped
LARGEST_CHUNK = 256 << 20  # bytes of a chunk that are decoded at once unless ``memory_bytes`` is larger; Aiven's default is 4 MiB


@dataclass(frozen=True)
class Access:
    keys: KeyFiles | None = None  # private keys of a tier
    holes: bool = False  # whether chunks of a tier that cannot be read are holes instead of errors
    ahead_bytes: int = AHEAD_BYTES  # of a file that are fetched before they are asked for
    chunk_bytes: int = LARGEST_CHUNK  # of the largest chunk that is decoded
    # Data keys of some segments of the source. If one of them can be unwrapped, and another one cannot, that one was changed, and the
    # private key is right.
    wrapped: tuple[WrappedKey, ...] = ()


def wrapped_keys(manifests: Iterable[AivenManifest]) -> tuple[WrappedKey, ...]:
    """Some data keys of manifests, of each private key."""
    by_key: dict[str, list[bytes]] = {}
    for manifest in manifests:
        if manifest.encryption is not None and len(some := by_key.setdefault(manifest.encryption.key_id, [])) < _SAMPLES:
            some.append(manifest.encryption.wrapped)
    return tuple((name, wrapped) for name, some in by_key.items() for wrapped in some)


class UnreadableError(KolumnError):
    """A chunk is not what was written."""


class AivenFile:
    """The bytes of a segment as the broker had them; errors as `unwrap`, or if the object is missing or a chunk is too large. With
    ``access.holes``, bytes of chunks that are missing or were changed are 0xff, which damage handling crosses, and a warning is logged."""

    def __init__(self, manifest: AivenManifest, access: Access) -> None:
        self.manifest, self.access = manifest, access
        if manifest.largest > access.chunk_bytes and not manifest.is_plain:
            raise KolumnError(
                f"{manifest.name}: its chunks have {manifest.largest} bytes, and at most {access.chunk_bytes} are decoded at once: "
                f"set memory_bytes={manifest.largest} if the manifest is to be trusted"
            )
        self._object: Any = None
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._reported: set[int] = set()
        self._lock = Lock()
        try:
            self._cipher = cipher_of(manifest, access)
        except UnreadableError as error:
            logger.warning("%s: all %d bytes of the segment are left out", shown(str(error)), manifest.size)
            return
        if manifest.size and storage.look(manifest.object_name) is None:
            text = f"{manifest.object_name}: missing: {manifest.name} says that it has {manifest.borders[-1]} bytes"
            if not access.holes:
                raise StorageError(text)
            logger.warning("%s: all %d bytes of the segment are left out", shown(text), manifest.size)
        elif manifest.size:
            self._object = open_ranges(manifest.object_name)

    def close(self) -> None:
        if self._object is not None:
            self._object.close()

    def read_at(self, size: int, start: int) -> bytes:
        """Bytes [start, start + size) of the segment, less at its end; an error names the object, the chunk and the bytes."""
        end = min(start + size, self.manifest.size)
        if start >= end:
            return b""
        if self.manifest.is_plain:
            return self._plain(start, end)
        first, last = start // self.manifest.chunk_size, (end - 1) // self.manifest.chunk_size
        data = b"".join(self._chunks(first, last))
        skipped = start - first * self.manifest.chunk_size
        return data[skipped : skipped + end - start]

    def _plain(self, start: int, end: int) -> bytes:
        data = bytes(self._fetched(start, end))
        if len(data) < end - start:
            low = start + len(data)
            what = f"bytes {low} to {end}: expected {end - low} bytes, found none: the object is missing or was cut"
            self._report(f"{self.manifest.object_name}: {what}", start // self.manifest.chunk_size)
            data += _HOLE * (end - low)
        return data

    def _report(self, error: str, chunk: int) -> None:
        """Raise an error, or log it once for each chunk. A missing object was reported when it was opened."""
        if not self.access.holes:
            raise KolumnError(error)
        if self._object is not None and chunk not in self._reported:
            self._reported.add(chunk)
            logger.warning("%s: its bytes are left out", shown(error))

    def _chunks(self, first: int, last: int) -> list[bytes]:
        with self._lock:
            known = {chunk: self._kept[chunk] for chunk in range(first, last + 1) if chunk in self._kept}
        missing = [chunk for chunk in range(first, last + 1) if chunk not in known]
        if missing:
            begin, end = self.manifest.stored(missing[0], missing[-1])
            stored = self._fetched(begin, end)
            parts = [stored[low - begin : high - begin] for low, high in (self.manifest.stored(chunk, chunk) for chunk in missing)]
            decode = map if len(missing) == 1 else shared(UNPACK).map
            decoded = dict(zip(missing, decode(self._decoded, missing, parts), strict=True))
            known |= {chunk: data for chunk, data in decoded.items() if isinstance(data, bytes)}
            known |= self._holes([(chunk, error) for chunk, error in decoded.items() if isinstance(error, UnreadableError)])
            with self._lock:
                self._kept.update((chunk, known[chunk]) for chunk in missing)
                while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _KEPT_BYTES:
                    self._kept.popitem(last=False)
        return [known[chunk] for chunk in range(first, last + 1)]

    def _holes(self, bad: list[tuple[int, UnreadableError]]) -> dict[int, bytes]:
        """What stands for chunks that cannot be read; neighbours are one warning."""
        i = 0
        while i < len(bad):
            chunk, error = bad[i]
            last = chunk
            while i < len(bad) and bad[i][0] <= last + 1:
                last = bad[i][0]
                i += 1
            (low, high), (start, _), (_, end) = self.manifest.stored(chunk, last), self.manifest.span(chunk), self.manifest.span(last)
            which = f"chunk {chunk}" if chunk == last else f"chunks {chunk} to {last}"
            span = f"bytes {low} to {high} (bytes {start} to {end} of the segment)"
            self._report(f"{self.manifest.object_name}: {which}, {span}: {error}", chunk)
        return {chunk: _HOLE * (end - start) for chunk, _ in bad for start, end in [self.manifest.span(chunk)]}

    def _fetched(self, start: int, end: int) -> memoryview:
        """Bytes of the object, of neighbouring chunks by one request."""
        if self._object is None:
            return memoryview(b"")
        try:
            return memoryview(fetched(self._object, start, end))
        except (OSError, ArrowException) as error:
            raise StorageError(f"{self.manifest.object_name}: bytes {start} to {end} cannot be read: {error}") from error

    def _decoded(self, chunk: int, stored: memoryview) -> "bytes | UnreadableError":
        try:
            return self._checked(chunk, stored)
        except UnreadableError as error:
            return error

    def _checked(self, chunk: int, stored: memoryview) -> bytes:
        (low, high), (start, end) = self.manifest.stored(chunk, chunk), self.manifest.span(chunk)
        if len(stored) != high - low:
            raise UnreadableError(f"expected {high - low} bytes, found {len(stored)}: the object is missing or was cut")
        data: bytes | memoryview = stored
        if self._cipher is not None:
            data = decrypted(self._cipher, self.manifest, stored)
        if self.manifest.compressed:
            data = _decompressed(data, end - start)
        if len(data) != end - start:
            raise UnreadableError(f"expected {end - start} bytes of the segment, found {len(data)}")
        return bytes(data)


def cipher_of(manifest: AivenManifest, access: Access) -> Any:
    """The cipher of a manifest's data key, None if nothing is encrypted; errors as `unwrap`. With ``access.holes`` it is an UnreadableError
    that the data key was changed, if other data keys show that the private key is right."""
    if manifest.encryption is None:
        return None
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise missing_package(f"{manifest.name}: encrypted: {error}", *_CRYPTOGRAPHY) from error
    key_id, wrapped = manifest.encryption.key_id, manifest.encryption.wrapped
    cut = next((name for name, _ in access.keys or () if key_id.startswith(f"{name}:")), None)
    if access.holes and key_id not in dict(access.keys or ()) and (right := renamed(wrapped, access.keys)) is not None:
        logger.warning("%s: the manifest was changed: key %r does not wrap its data key, %r does", shown(manifest.name), key_id, right)
        key_id = right
    try:
        return AESGCM(unwrap(key_id, wrapped, access.keys, manifest.name))
    except KolumnError as error:
        # The last colon ends the name of the key: a byte of the base64 text may have become one.
        name = cut if isinstance(error, ArgumentError) else key_id
        if access.holes and name is not None and is_right(name, access.keys, access.wrapped):
            raise UnreadableError(str(error)) from error
        raise


def index_bytes(manifest: AivenManifest, access: Access, suffix: str) -> bytes | None:
    """An index file of a segment, by one request; None if there is none. None too, with a warning, if the object of indexes is missing, may
    not be read or was changed: the log has what is in it. A KolumnError if the request failed again and again; with ``access.holes`` that
    is a warning too."""
    span = next(((position, size) for name, position, size in manifest.indexes if name == suffix), None)
    if span is None:
        return None
    try:
        return _index(manifest, access, *span)
    except UnreadableError as error:
        text = f"{manifest.indexes_name}: {suffix}, bytes {span[0]} to {sum(span)}: {error}; the log is read instead"
        logger.warning("%s", shown(text))
        return None


def _index(manifest: AivenManifest, access: Access, position: int, size: int) -> bytes:
    """The bytes of an index file; UnreadableError where a warning is enough."""
    if size < 0:
        raise UnreadableError("the manifest gives no valid position and size for this index")
    try:
        with closing(open_ranges(manifest.indexes_name)) as file:
            stored = fetched(file, position, position + size)
    except (KolumnError, OSError, ArrowException) as error:
        cause = error.__cause__ if isinstance(error, KolumnError) else error
        if access.holes or (isinstance(cause, Exception) and is_final(cause)):
            raise UnreadableError(str(error)) from error
        raise StorageError(f"{manifest.indexes_name}: bytes {position} to {position + size} cannot be read: {error}") from error
    if len(stored) != size:
        raise UnreadableError(f"expected {size} bytes, found {len(stored)}")
    cipher = cipher_of(manifest, access)
    return stored if cipher is None else decrypted(cipher, manifest, memoryview(stored))


def decrypted(cipher: Any, manifest: AivenManifest, stored: memoryview) -> bytes:
    """The contents of a chunk; UnreadableError if it is not what was written."""
    from cryptography.exceptions import InvalidTag

    assert manifest.encryption is not None
    if len(stored) < CIPHER_BYTES:
        raise UnreadableError(f"expected at least {CIPHER_BYTES} bytes of AES-GCM, found {len(stored)}")
    try:
        return bytes(cipher.decrypt(bytes(stored[:IV_BYTES]), stored[IV_BYTES:], manifest.encryption.aad))
    except InvalidTag:
        raise UnreadableError("the tag of AES-GCM is wrong: bytes were changed, or the manifest is that of another object") from None


def _decompressed(data: bytes | memoryview, size: int) -> bytes:
    try:
        if zstandard.frame_content_size(data) != size:
            raise UnreadableError(f"expected a zstd frame of {size} bytes, found another size in it")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise UnreadableError(f"expected a zstd frame: {error}") from error
