"""Tells Avro values whose first bytes only look like a prefix from those that have one, where no schemas say whether its id is one.

Both readings can fit: a value of doubles and unions, for example, may begin with nine bytes that are a value's own part and look like
Apicurio's prefix. A prefix that a bare value seldom begins with, as `kolumn.values.framing.doubtful` says, is believed wherever the rest
fits; of the others only where the value does not fit without one. The first values are compared, and the log tells if both readings fit.
"""

import logging
from ctypes import string_at
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags
from kolumn.core.buffers import flags
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.values.framing import NULL
from kolumn.values.avro import AvroDecoder
from kolumn.values.decoder import Bodies
from kolumn.values.framing import doubtful
from kolumn.values.schemas.schema import Schema
from kolumn.values.wire import framing as wire

logger = logging.getLogger("kolumn.values")
_COMPRESSED = b"\3\5"  # The beginning of AWS Glue's prefix.
_COMPARED = 256  # Values with a prefix that is believed, of the first ones of a read, which are read without it as well.


class BareValues:
    """Finds such values among those of one read, by the reader's ``schema``; ``option`` is the name of the option for framings."""

    def __init__(self, schema: Schema, option: str) -> None:
        self._option, self._is_compared, self._is_told = option, False, False
        whole, walker = _decoder(schema, None), _decoder(schema, ())
        some = whole or walker
        assert some is not None, "one that is read has values or fields"
        # Most values with a prefix do not even have the right lengths without it: no columns are filled to find that.
        self._decoder, self._walker = some, walker or some

    def settled(self, bodies: Bodies, ids: pa.Array) -> tuple[Bodies, pa.Array]:
        """The bodies and ids that `kolumn.values.framing.Framer.bodies` returns, with values that have no prefix as such."""
        unsure = doubtful(bodies.framing, ids)
        if not self._is_compared:
            self._compare(bodies, (bodies.prefix > 0) & (bodies.length >= 0) & (True if unsure is None else ~unsure))
        if unsure is None:
            return bodies, ids
        bare = self._bare(bodies, unsure)
        if not bare.any():
            return bodies, ids
        whole, none = _whole(bodies, bare), np.where(bare, wire.NONE, bodies.framing)
        length = np.where(bare, whole.length, bodies.length)
        address, prefix = np.where(bare, whole.address, bodies.address), np.where(bare, 0, bodies.prefix)
        return replace(bodies, address=address, length=length, prefix=prefix, framing=none), pc.if_else(flags(bare), None, ids)

    def _bare(self, bodies: Bodies, rows: Flags) -> Flags:
        """Those of some rows with a prefix of which all bytes are one value."""
        rows = self._walker.fits(_whole(bodies, rows))
        for row in np.flatnonzero(rows & (bodies.framing == wire.GLUE)).tolist():
            # What could be decompressed is no value itself.
            rows[row] = string_at(int(bodies.address[row] - bodies.prefix[row]), 2) != _COMPRESSED
        both = rows & self._decoder.fits(_only(bodies, rows))
        if both.any():
            whole = self._decoder.fits(_whole(bodies, both))
            rows &= whole | ~both
            if whole.any():
                self._tell("without one")
        return rows

    def _compare(self, bodies: Bodies, believed: Flags) -> None:
        """Look whether the first values whose prefix is believed are values without it, too."""
        some = bodies.rows(np.flatnonzero(believed)[:_COMPARED])
        if not len(some):
            return
        self._is_compared, every = True, np.ones(len(some), bool)
        if (self._decoder.fits(_whole(some, every)) & self._decoder.fits(_only(some, every))).any():
            self._tell("after it")

    def _tell(self, how: str) -> None:
        if not self._is_told:
            self._is_told = True
            found = f"some values fit the schema with a prefix and without, and are read {how}"
            logger.warning("%s='auto': %s: name the framing that they have, 'none' for none", self._option, found)


def _decoder(schema: Schema, columns: tuple[str, ...] | None) -> AvroDecoder | None:
    """A decoder; None if a schema is too large to be read as a whole, or has no fields of which none can be wanted."""
    try:
        return AvroDecoder(schema, columns)
    except ArgumentError:
        return None


def _only(bodies: Bodies, rows: Flags) -> Bodies:
    """The bodies of some rows; the others are null."""
    return replace(bodies, length=np.where(rows, bodies.length, NULL), bare=False)


def _whole(bodies: Bodies, rows: Flags) -> Bodies:
    """The same with the bytes in front of them."""
    return replace(_only(replace(bodies, length=bodies.length + bodies.prefix), rows), address=bodies.address - bodies.prefix)
