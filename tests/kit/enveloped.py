"""What the decoders behind envelopes make of values of JSON, and what is lost of each."""

import json
from typing import Any

import pyarrow as pa

from kolumn.readers.types import inference
from kolumn.values.by_schema import JsonEnvelope
from kolumn.values.envelopes import json_envelope, opened
from kolumn.values.framing import BareFramer
from kolumn.values.typed import Typed

VALUE = Typed("value", "json")
Found = list[tuple[Any, tuple[str, ...]]]


def salvaged(kind: str, values: list[Any], columns: list[str] | None = None, sample: list[Any] | None = None) -> Found:
    """Rows and what they lost, which is compared with the valid rows of `decode`."""
    payloads = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in values]
    sampled = payloads if sample is None else [json.dumps(one).encode() for one in sample]
    how = json_envelope(kind, None, sampled, inference(VALUE), "value_envelope")
    assert isinstance(how, JsonEnvelope)
    decoder = opened(kind, how, columns, None, VALUE.whole, "value_envelope")
    bodies, _ = BareFramer().bodies(pa.array(payloads, pa.binary()))
    array, lost = decoder.salvage(bodies)
    array.validate(full=True)
    rows, valid = decoder.decode(bodies)
    rows.validate(full=True)
    assert rows.type == array.type == decoder.type
    for row, (one, good) in enumerate(zip(rows.to_pylist(), valid.tolist(), strict=True)):
        assert (one, lost[row]) == (array[row].as_py(), ()) if good else one is None
    return list(zip(array.to_pylist(), lost, strict=True))
