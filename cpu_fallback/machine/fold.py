"""CRCs of long runs by carry-less multiplication: several vectors at a time, each of which is moved to the position of a later one.

    |  a  |  b  |  c  |  d  |  a' |  b' |  c' |  d' | ...        a = move(a) ^ a', b = move(b) ^ b', ...

    move, for each 16 bytes of a vector:   | low, 8 bytes | high, 8 bytes |    ->    low * x^(D + 64) + high * x^D

D is the distance in bits. A factor is a remainder of 32 bits. The product of reflected numbers is one bit short, and it is 32 bits too
high because the factor is in the low half of its 64 bits: hence x^(D + 31) and x^(D - 33). The result is one vector with the same
checksum as all bytes. (Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.)
"""

from typing import Any

from kolumn.cpu_fallback.machine.processor import has
from kolumn.formats import crc
from kolumn.machine_code.deferred import intrinsic, ir, types

_NAMES = {16: "llvm.x86.pclmulqdq", 32: "llvm.x86.pclmulqdq.256", 64: "llvm.x86.pclmulqdq.512"}
_LOW, _HIGH = 0x00, 0x11
"""Selectors of the halves of each 16 bytes that are multiplied."""


def widest() -> int:
    """Bytes of the widest vectors that this CPU multiplies without carry; 0 if it cannot."""
    if has("vpclmulqdq"):
        return 64 if has("avx512f") else 32
    return 16 if has("pclmul") else 0


def folding(width: int, vectors: int, polynomial: int) -> Any:
    """Make ``fold(register, at, blocks)``, which folds ``blocks`` times ``vectors`` vectors of ``width`` bytes at address ``at``.

    It returns the last vector as int64 words. Added to a register of zero, they produce the same register as all bytes.
    """
    step = width * vectors

    @intrinsic
    def fold(typing: Any, register: Any, at: Any, blocks: Any) -> Any:
        result = types.UniTuple(types.int64, width // 8)

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            register, at, blocks = args
            emitter = Folding(builder, width, polynomial)
            first = emitter.begin(register, at, vectors)
            last = emitter.loop(first, at, builder.add(at, builder.mul(blocks, at.type(step))), step)
            return context.make_tuple(builder, result, emitter.end(last))

        return result(types.int64, types.int64, types.int64), emit

    return fold


class Folding:
    """Emits the instructions for vectors of one width."""

    def __init__(self, builder: Any, width: int, polynomial: int) -> None:
        self.builder, self.width, self.polynomial = builder, width, polynomial
        self.kind = ir.VectorType(ir.IntType(64), width // 8)
        kind = ir.FunctionType(self.kind, [self.kind, self.kind, ir.IntType(8)])
        name = _NAMES[width]
        self.multiply = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)

    def begin(self, register: Any, at: Any, vectors: int) -> list[Any]:
        """The first vectors at an address, with a register added to the first bytes."""
        first = [self.load(at, k * self.width) for k in range(vectors)]
        start = self.builder.insert_element(ir.Constant(self.kind, [0] * (self.width // 8)), register, ir.IntType(32)(0))
        return [self.builder.xor(first[0], start), *first[1:]]

    def end(self, vectors: list[Any]) -> list[Any]:
        """Words of the one vector that adjacent ones are folded to."""
        left = vectors[0]
        for other in vectors[1:]:
            left = self.move(left, self.width, other)
        return [self.builder.extract_element(left, ir.IntType(32)(k)) for k in range(self.width // 8)]

    def load(self, at: Any, further: int) -> Any:
        """The vector at an address, which may be unaligned."""
        address = self.builder.add(at, at.type(further))
        vector = self.builder.load(self.builder.inttoptr(address, self.kind.as_pointer()))
        vector.align = 1
        return vector

    def product(self, a: Any, b: Any, halves: int) -> Any:
        """Products of the low or high halves of each 16 bytes of two vectors."""
        return self.builder.call(self.multiply, [a, b, ir.IntType(8)(halves)])

    def move(self, vector: Any, distance: int, other: Any) -> Any:
        """A vector moved ``distance`` bytes forward, to the position of ``other``, and added to it."""
        factors = [crc.power_of_x(8 * distance + 31, self.polynomial), crc.power_of_x(8 * distance - 33, self.polynomial)]
        by = ir.Constant(self.kind, factors * (self.width // 16))
        low, high = (self.product(vector, by, half) for half in (_LOW, _HIGH))
        return self.builder.xor(self.builder.xor(low, high), other)

    def loop(self, vectors: list[Any], at: Any, end: Any, step: int) -> list[Any]:
        """Fold all later vectors up to address ``end``."""
        builder, before = self.builder, self.builder.block
        body, after = builder.append_basic_block("fold"), builder.append_basic_block("folded")
        following = builder.add(at, at.type(step))
        builder.cbranch(builder.icmp_signed("<", following, end), body, after)
        builder.position_at_end(body)
        here = builder.phi(at.type)
        old = [builder.phi(self.kind) for _ in vectors]
        new = [self.move(one, step, self.load(here, k * self.width)) for k, one in enumerate(old)]
        onward = builder.add(here, at.type(step))
        builder.cbranch(builder.icmp_signed("<", onward, end), body, after)
        here.add_incoming(following, before)
        here.add_incoming(onward, body)
        builder.position_at_end(after)
        result = [builder.phi(self.kind) for _ in vectors]
        for one, begins, goes_on, ends in zip(old, vectors, new, result, strict=True):
            one.add_incoming(begins, before)
            one.add_incoming(goes_on, body)
            ends.add_incoming(begins, before)
            ends.add_incoming(goes_on, body)
        return result
