"""Which records `kolumn cat` prints: ``--key`` and ``--grep``."""

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kolumn.errors import ArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

_BASE64 = "base64:"


class RecordFilter:
    """Chooses records by their stored key and value, whatever is printed of them.

    Parameters
    ----------
    key : str, optional
        The key, as text or, after ``base64:``, as base64: the form in which `kolumn cat` prints it.
    grep : str, optional
        A regular expression (RE2) that is searched in keys and values, as bytes.
    typed : collection of str
        Which of "key" and "value" are decoded, so that their stored bytes are in another column.

    Raises
    ------
    ArgumentError
        The key is not base64, or the regular expression is not one.
    """

    def __init__(self, key: str | None, grep: str | None, typed: Collection[str]) -> None:
        self._key = None if key is None else _bytes(key)
        self._grep = None if grep is None else _checked(grep)
        self._names = {name: f"{name}Raw" if name in typed else name for name in ("key", "value")}

    @property
    def columns(self) -> list[str]:
        """The columns by which records are chosen."""
        found = [self._names["key"]] if self._key is not None or self._grep is not None else []
        return found + ([self._names["value"]] if self._grep is not None else [])

    def of(self, batches: "Iterable[pa.RecordBatch]", printed: Collection[str] | None) -> "Iterator[pa.RecordBatch]":
        """The chosen records, without the columns that are there only to choose them."""
        if not self.columns:
            yield from batches
            return
        extra = [] if printed is None else [name for name in self.columns if name not in printed]
        for batch in batches:
            batch = batch.filter(self._mask(batch))
            yield batch.drop_columns(extra) if extra else batch

    def _mask(self, batch: "pa.RecordBatch") -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        mask = pa.scalar(True)
        if self._key is not None:
            mask = pc.equal(batch[self._names["key"]], pa.scalar(self._key, pa.binary()))
        if self._grep is not None:
            found = [pc.fill_null(pc.match_substring_regex(batch[name], self._grep), False) for name in self._names.values()]
            mask = pc.and_(mask, pc.or_(*found))
        return mask


def _bytes(text: str) -> bytes:
    if not text.startswith(_BASE64):
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text.removeprefix(_BASE64), validate=True)
    except binascii.Error as error:
        raise ArgumentError(f"--key {text}: what follows {_BASE64} is not base64: {error}") from error


def _checked(pattern: str) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([b""]), pattern)
    except pa.ArrowInvalid as error:
        raise ArgumentError(f"--grep {pattern}: not a regular expression: {error}") from error
    return pattern
