"""Protobuf messages on the device: the columns that the CPU decodes, and which messages a thread leaves to the host."""

import random
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory

import kolumn
from kit.device_columns import compared
from kit.emulated import Emulated
from kit.protobuf_values import ORDER, body, mutants, schema
from kolumn.core.errors import ArgumentError
from kolumn.core.lost import LostValues
from kolumn.kernels.machine.device import runtime
from kolumn.kernels.values.columns import Values, typed_columns
from kolumn.values.protobuf_schema import file_of
from kolumn.values.typed import Typed

MAKE = message_factory.GetMessageClass(file_of(ORDER, None).message("Order"))


def compare(given: list[bytes | None], made: Any, message: str, path: Path, shape: str = "columns") -> tuple[int, list[bool]]:
    """Compare with the CPU; returns how many launches of the second pass there were, and which values are valid."""
    kolumn.write(pa.table({"value": pa.array(given, pa.binary())}), path, codec="lz4")
    device: Any = runtime()
    before = device.launched.get("write_messages", 0)
    how = {"columns": ["value", "valueValid", "valueSchemaId"], "value_format": "protobuf", "value_schema": made, "value_message": message}
    found = compared(path, value_as=shape, **how)
    return device.launched.get("write_messages", 0) - before, found["valueValid"].to_pylist()


def orders(rng: random.Random, count: int, odd: bool = True) -> list[Any]:
    """Random orders; ``odd`` ones have times and numbers of enums that columns of a GPU do not hold."""
    made = []
    for _ in range(count):
        one = MAKE(id=rng.choice([0, -1, 2**63 - 1, rng.getrandbits(40)]), four=rng.getrandbits(32))
        one.color = rng.choice([0, 5, -3, 7 if odd else 5])
        one.colors.extend(rng.choices([0, 5, -3, 99 if odd else 0], k=rng.randrange(3)))
        one.numbers.extend(rng.getrandbits(rng.randrange(1, 60)) - 5 for _ in range(rng.randrange(4)))
        for item in [one.items.add() for _ in range(rng.randrange(3))] + ([one.first] if rng.random() < 0.5 else []):
            item.sku, item.qty = rng.choice(["", "s1", "naïve"]), rng.choice([0, 7, -1])
            item.parts.extend(rng.randbytes(rng.randrange(4)) for _ in range(rng.randrange(3)))
            if rng.random() < 0.5:
                item.at.seconds = rng.choice([0, -(2**40), 2**62, 9223372036] if odd else [0, -(2**30), 9223372030])
                item.at.nanos = rng.choice([0, -1, 999_999_999, 2**31 - 1])
        one.paid, one.price, one.raw = rng.random() < 0.5, rng.random(), rng.randbytes(rng.randrange(5))
        if rng.random() < 0.5:
            one.customer, one.at.seconds, one.took.nanos = rng.choice(["", "a customer with a long name"]), 5, -7
        if rng.random() < 0.5:
            one.label.value = rng.choice(["", "label"])
        match rng.randrange(4):
            case 0:
                one.card = "1234"
            case 1:
                one.gift.sku = "gift"
            case 2:
                one.points = 9
        made.append(one)
    return made


def values(rng: random.Random, count: int, odd: bool = True) -> list[bytes | None]:
    """Their bytes, with what precedes them; with ``odd`` some that are malformed."""
    found: list[bytes | None] = []
    for one in orders(rng, count, odd):
        value = rng.choice([b"", b"\0\0\0\0\7\2\2", b"\1" + bytes(range(16)) + b"\2\2", b"\0\0\0\0\7\0"]) + one.SerializeToString()
        wrong = [value[: rng.randrange(len(value))], value + b"\x0c"] if odd else []
        found.append(rng.choice([value] * 6 + [*wrong, None]))
    return found


PTX = pytest.mark.parametrize("emulated", ["ptx", pytest.param("loops", marks=pytest.mark.slow)], indirect=True)
"""As loops the kernels take long to compile."""


@PTX
@pytest.mark.parametrize("shape", ["columns", "struct"])
def test_the_same_columns_as_on_the_cpu(emulated: Emulated, shape: str, tmp_path: Path) -> None:
    rng = random.Random(3)
    written, valid = compare([*values(rng, 200, odd=False), b""], ORDER, "Order", tmp_path / "a.log", shape)
    assert (written, {*valid}) == (1, {True, False})
    assert {"measure_messages", "write_messages", "moments", "symbols"} <= set(emulated.launched)


ODD = {"all": None, "enum": b"\x18\7", "time": b"\x3a\6\x08" + b"\xff" * 4 + b"\x7f", "text": b"\x12\1\xff"}


@PTX
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_values_that_make_the_host_decode(emulated: Emulated, value: bytes | None, tmp_path: Path) -> None:
    """A number of an enum without a symbol is its own, and what is lost is looked for."""
    rng = random.Random(5)
    given = values(rng, 100) if value is None else [*values(rng, 20, odd=False), value, b""]
    assert compare(given, ORDER, "Order", tmp_path / "a.log")[0] == 1


@PTX
@pytest.mark.parametrize(
    "more",
    [
        b"\x12\1x\x12\1y", b"\x32\2\x0a\0\x32\2\x0a\0", b"\x72\1x\x7a\0", b"\x9b\x7d\x9c\x7d", b"\x4a\0\x4a\3\x0a\1x",
        b"\0\0\0\0\7\2\2\x12\1x\x12\1y", b"\xc3\1" + 4 * b"\x08\1" + b"\xc4\1\x08\7",
    ],
    ids=["a string again", "a message again", "two of a oneof", "a group", "a wrapper again", "after a prefix", "a group like a prefix"],
)  # fmt: skip
def test_what_a_thread_leaves_to_the_host(emulated: Emulated, more: bytes, tmp_path: Path) -> None:
    rng = random.Random(4)
    given: list[bytes | None] = [*(one.SerializeToString() for one in orders(rng, 20)), more, b"", None, b"\x0a"]
    assert compare(given, ORDER, "Order", tmp_path / "a.log")[0] == 0
    # A number that comes again is written again.
    given[20] = b"\x08\1\x08\2"
    assert compare(given, ORDER, "Order", tmp_path / "b.log")[0] == 1


@PTX
def test_times_at_the_limits(emulated: Emulated, tmp_path: Path) -> None:
    given = []
    for limit, step, moved in product((2**63 - 1, -(2**63), 0), (-1, 0, 1), (-1, 0, 1, 2)):
        one, (seconds, nanos) = MAKE(), divmod(limit + step, 10**9)
        one.at.seconds, one.at.nanos = seconds + moved, nanos - moved * 10**9
        given.append(one.SerializeToString())
    assert compare(given, ORDER, "Order", tmp_path / "a.log")[0] == 1


@PTX
@pytest.mark.parametrize("seed", range(12))
def test_any_schema(emulated: Emulated, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    while True:
        made = schema(rng)
        try:
            Values.of(Typed("value", "protobuf", message="M0", reader=made))
        except ArgumentError:
            continue
        break
    message = file_of(made, None).message("M0")
    given = [body(rng, message, 0.1) for _ in range(40)]
    given += [one for value in given[:20] for one in mutants(rng, value, given[0], 2)]
    compare(given, made, "M0", tmp_path / "a.log")


@PTX
def test_one_value_and_none(emulated: Emulated, tmp_path: Path) -> None:
    """Its thread is the last one, and the only one that can write where the first value begins."""
    (one,) = orders(random.Random(6), 1)
    assert compare([one.SerializeToString()], ORDER, "Order", tmp_path / "a.log") == (1, [True])
    # What is after a value, here the count of its headers, is no message index.
    assert compare([b"\0\0\0\0\7", b"\0\0\0\0\7\0"], ORDER, "Item", tmp_path / "b.log") == (1, [False, True])
    how = Values.of(Typed("value", "protobuf", message="Order", flat=True, reader=ORDER))
    found = typed_columns(runtime(), None, how, ["value", "valueValid"], "binary", LostValues())
    assert [column.rows for column in found.values()] == [0] * 18


@pytest.mark.parametrize(
    "text", ["map<string, int32> m = 1;", "M2 inner = 1;", "repeated M2 inner = 1;", "M itself = 1;"],
    ids=["a map", "a large message", "many of them", "JSON text"],
)  # fmt: skip
def test_messages_that_the_host_decodes(text: str) -> None:
    large = "".join(f"int32 f{k} = {k};" for k in range(1, 64))
    with pytest.raises(ArgumentError, match="on the host"):
        Values.of(Typed("value", "protobuf", message="M", reader=f'syntax = "proto3"; message M2 {{ {large} }} message M {{ {text} }}'))
