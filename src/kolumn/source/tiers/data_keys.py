"""Data keys of encrypted segments in a tier: unwrapped by a private RSA key, from files that the caller names.

Aiven's tiered-storage wraps with BouncyCastle's RSA/NONE/OAEPWithSHA3-512AndMGF1Padding: OAEP (RFC 8017, 7.1.2) with SHA3-512 for the
empty label and for MGF1. The package cryptography reads key files and has AES-GCM, but refuses SHA3 in OAEP; pycryptodome does that.
"""

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kolumn.core.errors import ArgumentError, KolumnError, MissingPackageError

KeyFiles = tuple[tuple[str, str], ...]
"""Names of keys, and files with private RSA keys, as PEM or DER."""
WrappedKey = tuple[str, bytes]
"""Name of a key, and a data key that it wraps."""
_KEY_BYTES = (16, 24, 32)


def key_files(keys: Mapping[str, str | os.PathLike[str]] | None) -> KeyFiles | None:
    """The caller's option, checked: names of keys and paths."""
    if keys is None:
        return None
    if not isinstance(keys, Mapping) or not all(
        isinstance(name, str) and isinstance(path, str | os.PathLike) for name, path in keys.items()
    ):
        raise ArgumentError("keys: expected a mapping of names of keys to files of private RSA keys, such as {'key1': 'private.pem'}")
    return tuple((name, os.fspath(path)) for name, path in keys.items())


@lru_cache(maxsize=4096)
def unwrap(key_id: str, wrapped: bytes, files: KeyFiles | None, name: str) -> bytes:
    """The data key of the segment ``name``.

    Raises
    ------
    ArgumentError
        No file is named for the key, or it has no private RSA key.
    KolumnError
        The key is not the one that wrapped this data key, or that was changed; one error for all reasons.
    """
    paths = dict(files or ())
    if key_id not in paths:
        given = f"found those of {', '.join(map(repr, paths))}" if paths else "found none"
        raise ArgumentError(f"{name}: encrypted with key {key_id!r}: expected its private key in keys={{{key_id!r}: path}}, {given}")
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
    try:
        message: bytes = cipher.decrypt(wrapped)
    except ValueError:
        return None
    return message


@lru_cache(maxsize=32)
def _private_key(key_id: str, path: str) -> Any:
    """The OAEP cipher of the private key in a file."""
    try:
        from Crypto.Cipher import PKCS1_OAEP
        from Crypto.Hash import SHA3_512
        from Crypto.PublicKey import RSA
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key
    except ImportError as error:
        raise MissingPackageError(f"encrypted segments: {error}: pip install 'kolumn[tiered]'") from error
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 20)
        key = load_pem_private_key(data, None) if b"-----BEGIN" in data else load_der_private_key(data, None)
    except OSError as error:
        raise ArgumentError(f"keys: {path}, of key {key_id!r}, cannot be read: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"keys: {path}, of key {key_id!r}, is not a private key in PEM or DER without a password: {error}") from error
    if not isinstance(key, RSAPrivateKey):
        raise ArgumentError(f"keys: {path}, of key {key_id!r}, is not a private RSA key")
    numbers = key.private_numbers()
    public = numbers.public_numbers
    # The package cryptography has checked the numbers.
    private = RSA.construct((public.n, public.e, numbers.d, numbers.p, numbers.q), consistency_check=False)
    sha3: Any = SHA3_512
    return PKCS1_OAEP.new(private, hashAlgo=sha3)
