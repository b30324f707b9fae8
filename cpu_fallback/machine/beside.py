"""CRC-32C by carry-less multiplications and by the CPU's instruction for it at the same time, which different units of a CPU do.

A run is cut into a part that is folded, vector by vector, and into streams of equal length for the instruction, whose latency is more than
one cycle. A turn takes some vectors of the one and some words of each of the others:

    |<------- folded ------->|<- stream 0 ->|<- stream 1 ->| ...    turn 0:   ####.................|##.........|##.........|
     turns * vectors * width  turns * words * 8                     turn 1:   ....####.............|..##.......|..##.......|

Each register is then multiplied with x^(bits after its part) modulo the polynomial, and the sum of the products is that of the whole run.

Folding moves each vector to the position of a later one, to which it is added. For each 16 bytes of a vector:

    | low, 8 bytes | high, 8 bytes |    ->    low * x^(D + 64) + high * x^D

D is the distance in bits. A factor is a remainder of 32 bits. The product of reflected numbers is one bit short, and it is 32 bits too
high because the factor is in the low half of its 64 bits: hence x^(D + 31) and x^(D - 33). The last vector has the same checksum as all
bytes. (Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.)
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from kolumn.formats import crc
from kolumn.formats.machine_code.deferred import cgutils, intrinsic, ir, types

_NAMES = {16: "llvm.x86.pclmulqdq", 32: "llvm.x86.pclmulqdq.256"}


class _Folding:
    """Emits the instructions for vectors of ``width`` bytes."""

    def __init__(self, builder: Any, width: int) -> None:
        self.builder, self.width = builder, width
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
        return _load(self.builder, at, further, self.kind)

    def product(self, a: Any, b: Any, halves: int) -> Any:
        """Products of the low (0x00) or high (0x11) halves of each 16 bytes of two vectors."""
        return self.builder.call(self.multiply, [a, b, ir.IntType(8)(halves)])

    def move(self, vector: Any, distance: int, other: Any) -> Any:
        """A vector moved ``distance`` bytes forward, to the position of ``other``, and added to it."""
        factors = [crc.power_of_x(8 * distance + bits, crc.CASTAGNOLI) for bits in (31, -33)]
        by = ir.Constant(self.kind, factors * (self.width // 16))
        low, high = (self.product(vector, by, halves) for halves in (0x00, 0x11))
        return self.builder.xor(self.builder.xor(low, high), other)


def side_by_side(width: int, vectors: int, streams: int, words: int) -> Any:
    """Make ``take(register, at, turns)``, which takes the bytes of at least two turns at address ``at``.

    It returns the last folded vector as int64 words, and then the register of each stream, which begins with zero.
    The vectors of a turn must have a multiple of the bytes that it takes of a stream.
    """
    step, stride = width * vectors, 8 * words

    @intrinsic
    def take(typing: Any, register: Any, at: Any, turns: Any) -> Any:
        result = types.UniTuple(types.int64, width // 8 + streams)

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            register, at, turns = args
            folding, word, crc32 = _Folding(builder, width), at.type, _instruction(builder)

            def advance(registers: list[Any], places: list[Any], first: int, last: int) -> list[Any]:
                """The registers after some words of a turn."""
                for k in range(first, last):
                    loaded = [_load(builder, place, 8 * k, word) for place in places]
                    registers = [builder.call(crc32, pair) for pair in zip(registers, loaded, strict=True)]
                return registers

            # All addresses have one counter, from minus the length of a stream up to 0: units that count are those that take words.
            ends = [builder.add(at, builder.mul(turns, word(step + (1 + k) * stride))) for k in range(streams)]
            vectors_end = builder.add(at, builder.mul(turns, word(step)))
            begins = [builder.mul(turns, word(-stride)), *folding.begin(register, at, vectors), *streams * [word(0)]]
            before, body, after = builder.block, builder.append_basic_block("beside"), builder.append_basic_block("joined")
            builder.branch(body)
            builder.position_at_end(body)
            state = [builder.phi(one.type) for one in begins]
            count, folded, registers = state[0], state[1 : 1 + vectors], state[1 + vectors :]
            here = builder.add(vectors_end, builder.mul(count, word(step // stride)))
            places = [builder.add(end, count) for end in ends]
            for k in range(vectors):
                # In the order in which a CPU should begin them.
                folded[k] = folding.move(folded[k], step, folding.load(here, step + k * width))
                registers = advance(registers, places, k * words // vectors, (k + 1) * words // vectors)
            onward = builder.add(count, word(stride))
            builder.cbranch(builder.icmp_signed("!=", onward, word(-stride)), body, after)
            for one, begin, next_one in zip(state, begins, [onward, *folded, *registers], strict=True):
                one.add_incoming(begin, before)
                one.add_incoming(next_one, body)
            builder.position_at_end(after)
            # The vectors are a turn ahead.
            registers = advance(registers, [builder.add(end, word(-stride)) for end in ends], 0, words)
            return context.make_tuple(builder, result, [*folding.end(folded), *registers])

        return result(types.int64, types.int64, types.int64), emit

    return take


def moving(size: int, most: int) -> Any:
    """Make ``move(register, count)``, which moves a register over ``count`` times ``size`` bytes of zeros, at most ``most`` times.

    It returns a word that brings a register of zero to the result, as the bytes of a message do. Such words can be added first.
    """

    @intrinsic
    def move(typing: Any, register: Any, count: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            register, count = args
            folding = _Folding(builder, 16)
            powers, half = _powers(size, most), ir.IntType(32)
            table = cgutils.global_constant(builder, f"powers.{size}.{most}", ir.Constant(ir.ArrayType(half, len(powers)), powers))
            power = builder.load(cgutils.gep_inbounds(builder, table, 0, count))
            factors = (register, builder.zext(power, register.type))
            a, b = (builder.insert_element(ir.Constant(folding.kind, [0, 0]), one, half(0)) for one in factors)
            return builder.extract_element(folding.product(a, b, 0), half(0))

        return types.int64(types.int64, types.int64), emit

    return move


@cache
def _powers(size: int, most: int) -> Sequence[int]:
    """x^(8 * size * k - 33) for each k: a product of reflected numbers is one bit short, and the word's own 32 bits more are taken off."""
    powers, step = [crc.power_of_x(-33, crc.CASTAGNOLI)], crc.power_of_x(8 * size, crc.CASTAGNOLI)
    while len(powers) <= most:
        powers.append(crc.multiply(powers[-1], step, crc.CASTAGNOLI))
    return powers


def _instruction(builder: Any) -> Any:
    word, name = ir.IntType(64), "llvm.x86.sse42.crc32.64.64"
    return builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(word, [word, word]), name)


def _load(builder: Any, at: Any, further: int, kind: Any) -> Any:
    loaded = builder.load(builder.inttoptr(builder.add(at, at.type(further)), kind.as_pointer()))
    loaded.align = 1
    return loaded
