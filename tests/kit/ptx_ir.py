"""PTX as text becomes a list of instructions, and these LLVM IR, one at a time: a function that runs one thread.

    i32 thread(registers, context, number)      context: see ptx_memory.py; number: the thread's in the launch

Every load and store asks `access` first. A kernel without synchronisations keeps its registers in the function, which returns 0 at
the end. In one with synchronisations the registers are in memory, since the function returns at each of them, with the number of
the synchronisation; called again, it goes on there. It counts how often the thread is in each basic block. The instructions of a block
include those of a predicate that is false, since a warp issues them all the same.
"""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kit.ptx_memory import ASK, COUNTERS, CTAID, FLAG, GIVE, MASK, NCTAID, NTID, PARAMS, SEGMENT, SHARED, TID
from kolumn.core.arrays import Bytes

SPECIAL = {"%tid.x": TID, "%ntid.x": NTID, "%ctaid.x": CTAID, "%nctaid.x": NCTAID}
BARRIER, WARP_BARRIER, SHUFFLE = 0, 1, 2
SHUFFLES = {"bfly": SHUFFLE, "idx": SHUFFLE + 1, "up": SHUFFLE + 2, "down": SHUFFLE + 3}
BALLOT = SHUFFLE + 4
_INTRINSICS = [
    *(f"declare i{b} @llvm.{f}.i{b}(i{b}, i{b})" for f in ("smax", "smin", "umax", "umin") for b in (16, 32, 64)),
    *(f"declare i{b} @llvm.abs.i{b}(i{b}, i1)" for b in (16, 32, 64)),
    *(f"declare i{b} @llvm.ctpop.i{b}(i{b})" for b in (32, 64)),
]


NOT_CODE = (".reg", ".pragma", ".loc", ".file", ".local", ".shared")


def bits_of(kind: str) -> int:
    """Bits of a type of PTX: ``s64``, ``b32``, ``pred``."""
    return 1 if kind == "pred" else int(kind[1:])


@dataclass(frozen=True)
class Instruction:
    """One instruction."""

    line: int  # in the text, from 1
    name: str  # with its types: ``ld.global.u8``; a label is ``label``
    operands: tuple[str, ...]  # the first one is the target, if there is one
    guard: str = ""  # predicate that decides whether it is done, or empty
    negated: bool = False  # whether the predicate has to be false


@dataclass
class Text:
    """A kernel's PTX."""

    text: str
    params: list[str] = field(default_factory=list)  # names of the parameters, 64 bits each
    registers: dict[str, int] = field(default_factory=dict)  # bits of each register
    shared: dict[str, int] = field(default_factory=dict)  # where each array lies in the shared memory of a block
    shared_bytes: int = 0
    constants: dict[str, Bytes] = field(default_factory=dict)  # arrays that the text holds, by name
    instructions: list[Instruction] = field(default_factory=list)

    def at(self, line: int) -> str:
        """A line of the text."""
        return self.text.split("\n")[line - 1].strip()


def parse(text: str) -> Text:
    """Take PTX with one kernel apart, or raise a ValueError."""
    entry = re.search(r"\.entry \w+\((.*?)\)[^{]*\{(.*)\}", text, re.S)
    if entry is None:
        raise ValueError("no kernel in this text")
    head, body = entry.groups()
    one = Text(text, params=re.findall(r"\.param \.[bsu]64 (\w+)", head))
    if len(one.params) != head.count(".param"):
        raise ValueError("a kernel's parameters have 64 bits each")
    for kind, prefix, most in re.findall(r"\.reg \.(\w+)\s+%(\w+?)<(\d+)>", body):
        one.registers.update({f"%{prefix}{i}": bits_of(kind) for i in range(int(most))})
    for align, symbol, size in re.findall(r"\.shared \.align (\d+) \.b8 ([$\w]+)\[(\d+)\]", text):
        # As badly aligned as it may be: at an odd multiple.
        one.shared[symbol] = (-(-one.shared_bytes // int(align)) | 1) * int(align)
        one.shared_bytes = one.shared[symbol] + int(size)
    for symbol, size, given in re.findall(r"\.(?:const|global) \.align \d+ \.b8 ([$\w]+)\[(\d+)\](?: = \{([^}]*)\})?;", text):
        values = [int(value) for value in given.split(",")] if given else []
        one.constants[symbol] = np.array(values + [0] * (int(size) - len(values)), np.int64).astype(np.uint8)
    first = text[: entry.start(2)].count("\n") + 1
    for number, raw in enumerate(body.split("\n"), first):
        line = re.sub(r"//.*", "", raw).strip()
        if line and not line.startswith(NOT_CODE):
            one.instructions.append(_instruction(number, line))
    return one


def _instruction(number: int, line: str) -> Instruction:
    if line.endswith(":"):
        return Instruction(number, "label", (line[:-1],))
    guard, negated = "", False
    if found := re.match(r"@(!?)(%p\d+)\s+(.*)", line):
        negated, guard, line = bool(found[1]), found[2], found[3]
    name, *rest = line.rstrip(";").split(None, 1)
    operands = tuple(one.strip() for one in re.findall(r"\[[^\]]*\]|[^,\s]+", rest[0] if rest else ""))
    return Instruction(number, name, operands, guard, negated)


@dataclass(frozen=True)
class Sync:
    """A place where threads wait for each other: its kind, and its line."""

    kind: int
    line: int


class UnknownError(NotImplementedError):
    """An instruction that the translation does not know."""


def _constant(named: tuple[str, Bytes]) -> str:
    name, data = named
    return f"@{name} = global [{len(data)} x i8] [{', '.join(f'i8 {one}' for one in data.tolist())}], align 16"


class Translation:
    """IR of a kernel.

    ``syncs`` are in the order of their numbers, from 1 on. ``slots`` say where each register is among those in memory; 0 is where a thread
    goes on. ``opcodes`` count instructions of the text, ``sizes`` those of each basic block that is counted.
    """

    def __init__(self, text: Text) -> None:
        self.text = text
        self.slots = {name: i + 1 for i, name in enumerate(text.registers)}
        self.talks = any(one.name.startswith(("shfl.", "bar.", "vote.")) for one in text.instructions)
        self.syncs: list[Sync] = []
        self.opcodes: Counter[str] = Counter()
        self._out: list[str] = []
        self.sizes: list[int] = []
        self._values, self._counted = 0, 0
        self._body()
        self.ir = "\n".join([*self._head(), *self._out, "}"])

    def __getstate__(self) -> dict[str, Any]:
        """Without what was only needed to make machine code."""
        return self.__dict__ | {"text": replace(self.text, instructions=[]), "ir": "", "_out": []}

    def _head(self) -> list[str]:
        head = [
            "declare i64 @access(i64, i64, i64, i64, i64, i64, i64)", *_INTRINSICS, *map(_constant, self.text.constants.items()),
            "define i32 @thread(i64 %r, i64 %context, i64 %number) {", "entry:", "  %regs = inttoptr i64 %r to ptr",
            "  %c = inttoptr i64 %context to ptr",
        ]  # fmt: skip
        if not self.talks:
            return head + [f"  %R{i} = alloca i{self.text.registers[name]}" for name, i in self.slots.items()]
        resumes = " ".join(f"i64 {k}, label %resume{k}" for k in range(1, len(self.syncs) + 1))
        return [*head, "  %pc = load i64, ptr %regs", f"  switch i64 %pc, label %begin [ {resumes} ]", "begin:"]

    def _emit(self, text: str) -> str:
        self._values += 1
        self._out.append(f"  %v{self._values} = {text}")
        return f"%v{self._values}"

    def _slot(self, name: str) -> str:
        return self._emit(f"getelementptr i64, ptr %regs, i64 {self.slots[name]}") if self.talks else f"%R{self.slots[name]}"

    def _context(self, at: int) -> str:
        return self._emit(f"getelementptr i64, ptr %c, i64 {at}")

    def _from_context(self, at: int) -> str:
        return self._emit(f"load i64, ptr {self._context(at)}")

    def _get(self, operand: str, bits: int) -> str:
        """An operand as an integer of so many bits."""
        own, value = 64, ""
        if operand in self.text.registers:
            own = self.text.registers[operand]
            value = self._emit(f"load i{own}, ptr {self._slot(operand)}")
        elif operand in SPECIAL:
            value = self._from_context(SPECIAL[operand])
        elif operand in self.text.shared:
            value = self._emit(f"add i64 {self._from_context(SHARED)}, {self.text.shared[operand]}")
        elif operand in self.text.constants:
            return f"ptrtoint (ptr @{operand} to i64)"
        elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", operand):
            return str(int(operand, 0) & 1 if bits == 1 else int(operand, 0))
        else:
            raise UnknownError(operand)
        return value if own == bits else self._emit(f"{'trunc' if own > bits else 'zext'} i{own} {value} to i{bits}")

    def _put(self, name: str, value: str, bits: int) -> None:
        if name == "_":
            return
        own = self.text.registers[name]
        if own != bits:
            value = self._emit(f"{'trunc' if own < bits else 'zext'} i{bits} {value} to i{own}")
        self._out.append(f"  store i{own} {value}, ptr {self._slot(name)}")

    def _address(self, operand: str) -> str:
        found = re.fullmatch(r"\[([%$\w]+)(?:\+?(-?\d+))?\]", operand)
        assert found, operand
        base = self._get(found[1], 64)
        return self._emit(f"add i64 {base}, {found[2]}") if found[2] else base

    def _count(self) -> None:
        """Count a visit of the instructions since the last call, which are one basic block."""
        if self._counted:
            counters = self._emit(f"inttoptr i64 {self._from_context(COUNTERS)} to ptr")
            counter = self._emit(f"getelementptr i64, ptr {counters}, i64 {len(self.sizes)}")
            before = self._emit(f"load i64, ptr {counter}")
            self._out.append(f"  store i64 {self._emit(f'add i64 {before}, 1')}, ptr {counter}")
            self.sizes.append(self._counted)
        self._counted = 0

    def _body(self) -> None:
        opened = True
        for one in self.text.instructions:
            if one.name == "label":
                name = one.operands[0].replace("$", "")
                if opened:
                    self._count()
                    self._out.append(f"  br label %{name}")
                self._out.append(f"{name}:")
                opened = True
                continue
            if not opened:
                self._out.append(f"dead{one.line}:")
            self.opcodes[one.name] += 1
            self._counted += 1
            opened = self._flow(one)
        if opened:
            self._out.append("  unreachable")

    def _flow(self, one: Instruction) -> bool:
        """An instruction; whether the next one follows it."""
        if one.name in ("bra", "bra.uni"):
            self._count()
            target = one.operands[0].replace("$", "")
            if not one.guard:
                self._out.append(f"  br label %{target}")
                return False
            yes, no = (f"next{one.line}", target) if one.negated else (target, f"next{one.line}")
            self._out += [f"  br i1 {self._get(one.guard, 1)}, label %{yes}, label %{no}", f"next{one.line}:"]
            return True
        if one.guard:
            yes, no = ("next", "do") if one.negated else ("do", "next")
            flag = self._get(one.guard, 1)
            self._out += [f"  br i1 {flag}, label %{yes}{one.line}, label %{no}{one.line}", f"do{one.line}:"]
        if one.name in ("ret", "exit"):
            assert not one.guard, one
            self._count()
            self._out.append("  ret i32 0")
            return False
        if one.name.startswith(("shfl.", "bar.", "vote.")):
            assert not one.guard, one
            self._sync(one)
        else:
            self._one(one)
        if one.guard:
            self._out += [f"  br label %next{one.line}", f"next{one.line}:"]
        return True

    def _sync(self, one: Instruction) -> None:
        self._count()
        kind, told = {"bar.sync": BARRIER, "bar.warp.sync": WARP_BARRIER}.get(one.name, -1), dict[int, str]()
        if one.name.startswith("shfl.sync."):
            kind = SHUFFLES[one.name.split(".")[2]]
            target, give, ask, segment, mask = one.operands
            told = {GIVE: give, ASK: ask, SEGMENT: segment, MASK: mask}
        elif one.name == "vote.sync.ballot.b32":
            kind, (target, give, mask) = BALLOT, one.operands
            told = {GIVE: give, MASK: mask}
        elif kind == WARP_BARRIER:
            told = {MASK: one.operands[0]}
        elif kind < 0 or one.operands != ("0",):
            raise UnknownError(f"line {one.line}: {one.name} {one.operands}")
        self._out += [f"  store i64 {self._get(operand, 64)}, ptr {self._context(at)}" for at, operand in told.items()]
        self.syncs.append(Sync(kind, one.line))
        number = len(self.syncs)
        self._out += [f"  store i64 {number}, ptr %regs", f"  ret i32 {number}", f"resume{number}:"]
        if kind >= SHUFFLE:
            name, *flag = target.split("|")
            self._put(name, self._from_context(GIVE), 64)
            if flag:
                self._put(flag[0], self._emit(f"trunc i64 {self._from_context(FLAG)} to i1"), 1)

    def _checked(self, address: str, width: int, write: int, line: int, value: str = "0") -> None:
        given = f"i64 {address}, i64 {width}, i64 {write}, i64 {line}, i64 %number, i64 {value}"
        answer = self._emit(f"call i64 @access(i64 %context, {given})")
        fine = self._emit(f"icmp ne i64 {answer}, 0")
        self._out += [f"  br i1 {fine}, label %ok{line}, label %no{line}", f"ok{line}:"]

    def _load(self, o: tuple[str, ...], bits: int, signed: bool, line: int) -> None:
        address = self._address(o[1])
        self._checked(address, bits // 8, 0, line)
        value = self._emit(f"load i{bits}, ptr {self._emit(f'inttoptr i64 {address} to ptr')}, align 1")
        own = self.text.registers[o[0]]
        if own > bits:
            value = self._emit(f"{'sext' if signed else 'zext'} i{bits} {value} to i{own}")
        self._put(o[0], value, own)
        self._out += [f"  br label %no{line}", f"no{line}:"]

    def _store(self, o: tuple[str, ...], bits: int, line: int) -> None:
        address, value = self._address(o[0]), self._get(o[1], bits)
        self._checked(address, bits // 8, 1, line, value if bits == 64 else self._emit(f"zext i{bits} {value} to i64"))
        pointer = self._emit(f"inttoptr i64 {address} to ptr")
        self._out += [f"  store i{bits} {value}, ptr {pointer}, align 1", f"  br label %no{line}", f"no{line}:"]

    def _convert(self, o: tuple[str, ...], to: str, of: str) -> None:
        wide, narrow = bits_of(to), bits_of(of)
        value = self._get(o[1], narrow)
        if wide > narrow:
            value = self._emit(f"{'sext' if of[0] == 's' else 'zext'} i{narrow} {value} to i{wide}")
        elif wide < narrow:
            value = self._emit(f"trunc i{narrow} {value} to i{wide}")
        own = self.text.registers[o[0]]
        if own > wide:  # a narrow result in a wide register is extended by its own type
            value = self._emit(f"{'sext' if to[0] == 's' else 'zext'} i{wide} {value} to i{own}")
        self._put(o[0], value, max(own, wide))

    def _one(self, one: Instruction) -> None:
        """What is no branch and no synchronisation."""
        parts, o = one.name.split("."), one.operands
        op, kind = parts[0], parts[-1]
        if kind != "pred" and not re.fullmatch(r"[bus]\d+", kind):
            raise UnknownError(f"line {one.line}: {one.name} {o}")
        bits, signed = bits_of(kind), kind[0] == "s"
        if op == "ld" and parts[1] == "param":
            self._parameter(o)
        elif op == "ld" and len(o) == 2 and parts[1] not in ("v2", "v4"):
            self._load(o, bits, signed, one.line)
        elif op == "st" and len(o) == 2 and parts[1] not in ("v2", "v4"):
            self._store(o, bits, one.line)
        elif op == "cvt":
            self._convert(o, parts[-2], parts[-1])
        elif op in ("shl", "shr"):
            self._shift(op, o, bits, op == "shr" and signed)
        else:
            value, wide = self._computed(op, parts, o, bits, signed)
            if not value:
                raise UnknownError(f"line {one.line}: {one.name} {o}")
            self._put(o[0], value, wide)

    def _parameter(self, o: tuple[str, ...]) -> None:
        params = self._emit(f"inttoptr i64 {self._from_context(PARAMS)} to ptr")
        slot = self._emit(f"getelementptr i64, ptr {params}, i64 {self.text.params.index(o[1][1:-1])}")
        self._put(o[0], self._emit(f"load i64, ptr {slot}"), 64)

    def _shift(self, op: str, o: tuple[str, ...], bits: int, arithmetic: bool) -> None:
        """Amounts beyond the width are allowed: they leave 0, or the sign."""
        a, by = self._get(o[1], bits), self._get(o[2], 32)
        small = self._emit(f"icmp ult i32 {by}, {bits}")
        amount = self._emit(f"select i1 {small}, i32 {by}, i32 {bits - 1 if arithmetic else 0}")
        if bits != 32:
            amount = self._emit(f"{'zext' if bits > 32 else 'trunc'} i32 {amount} to i{bits}")
        value = self._emit(f"{'shl' if op == 'shl' else 'ashr' if arithmetic else 'lshr'} i{bits} {a}, {amount}")
        self._put(o[0], value if arithmetic else self._emit(f"select i1 {small}, i{bits} {value}, i{bits} 0"), bits)

    def _computed(self, op: str, parts: list[str], o: tuple[str, ...], bits: int, signed: bool) -> tuple[str, int]:
        """Value of an instruction whose operands all have the width that it names, and the value's bits; empty if it is not known."""
        if op == "selp":
            a, b, flag = self._get(o[1], bits), self._get(o[2], bits), self._get(o[3], 1)
            return self._emit(f"select i1 {flag}, i{bits} {a}, i{bits} {b}"), bits
        v = [self._get(one, bits) for one in o[1:3]]
        kind, sign = f"i{bits}", "s" if signed else "u"
        if op in ("mov", "cvta") and len(o) == 2:
            return v[0], bits
        if op == "setp" and len(parts) == 3 and parts[1] in ("eq", "ne", "lt", "le", "gt", "ge"):
            return self._emit(f"icmp {'' if parts[1] in ('eq', 'ne') else sign}{parts[1]} {kind} {v[0]}, {v[1]}"), 1
        if op in ("add", "sub", "and", "or", "xor") and len(parts) == 2:
            return self._emit(f"{op} {kind} {v[0]}, {v[1]}"), bits
        if op in ("not", "neg"):
            return self._emit(f"xor {kind} {v[0]}, -1" if op == "not" else f"sub {kind} 0, {v[0]}"), bits
        if op == "abs":
            return self._emit(f"call {kind} @llvm.abs.{kind}({kind} {v[0]}, i1 0)"), bits
        if op in ("min", "max"):
            return self._emit(f"call {kind} @llvm.{sign}{op}.{kind}({kind} {v[0]}, {kind} {v[1]})"), bits
        if op == "div":
            return self._emit(f"{sign}div {kind} {v[0]}, {v[1]}"), bits
        if op == "popc":
            value = self._emit(f"call {kind} @llvm.ctpop.{kind}({kind} {v[0]})")
            return (value if bits == 32 else self._emit(f"trunc i64 {value} to i32")), 32
        if op in ("mul", "mad"):
            return self._product(op, parts[1], o, bits, signed)
        if op == "bfi":
            place, length = int(o[3]), int(o[4])
            mask = ((1 << length) - 1) << place
            moved = self._emit(f"and {kind} {self._emit(f'shl {kind} {v[0]}, {place}')}, {mask}")
            return self._emit(f"or {kind} {moved}, {self._emit(f'and {kind} {v[1]}, {~mask}')}"), bits
        if op == "bfe":
            place, length = int(o[2]), int(o[3])
            assert 0 < length <= bits - place, o
            high = self._emit(f"shl {kind} {v[0]}, {bits - place - length}")
            return self._emit(f"{'ashr' if signed else 'lshr'} {kind} {high}, {bits - length}"), bits
        if op == "prmt" and len(parts) == 2 and o[3].isdecimal():
            return self._permuted(int(o[3]), *v), 32
        return self._funnel(parts, o) if op == "shf" else ("", 0)

    def _permuted(self, selector: int, a: str, b: str) -> str:
        """Four of the bytes of two words, by a nibble each; a nibble from 8 on stands for a byte's sign in all of its bits."""
        low, high = (self._emit(f"zext i32 {one} to i64") for one in (a, b))
        both = self._emit(f"or i64 {low}, {self._emit(f'shl i64 {high}, 32')}")
        found = "0"
        for k in range(4):
            nibble = selector >> 4 * k & 0xF
            byte = self._emit(f"trunc i64 {self._emit(f'lshr i64 {both}, {8 * (nibble & 7)}')} to i8")
            if nibble & 8:
                byte = self._emit(f"ashr i8 {byte}, 7")
            moved = self._emit(f"shl i32 {self._emit(f'zext i8 {byte} to i32')}, {8 * k}")
            found = self._emit(f"or i32 {found}, {moved}")
        return found

    def _product(self, op: str, part: str, o: tuple[str, ...], bits: int, signed: bool) -> tuple[str, int]:
        a, b = (self._get(one, bits) for one in o[1:3])
        if part == "lo":
            value, wide = self._emit(f"mul i{bits} {a}, {b}"), bits
        else:
            wide = 2 * bits
            a, b = (self._emit(f"{'sext' if signed else 'zext'} i{bits} {one} to i{wide}") for one in (a, b))
            value = self._emit(f"mul i{wide} {a}, {b}")
            if part == "hi":
                value, wide = self._emit(f"trunc i{wide} {self._emit(f'lshr i{wide} {value}, {bits}')} to i{bits}"), bits
        if op == "mad":
            value = self._emit(f"add i{wide} {value}, {self._get(o[3], wide)}")
        return value, wide

    def _funnel(self, parts: list[str], o: tuple[str, ...]) -> tuple[str, int]:
        """32 of the 64 bits of two words, from a place that is taken modulo 32."""
        if parts[2] != "wrap":
            return "", 0
        low, high = (self._emit(f"zext i32 {self._get(one, 32)} to i64") for one in o[1:3])
        both = self._emit(f"or i64 {low}, {self._emit(f'shl i64 {high}, 32')}")
        by = self._emit(f"zext i32 {self._emit(f'and i32 {self._get(o[3], 32)}, 31')} to i64")
        if parts[1] == "r":
            return self._emit(f"trunc i64 {self._emit(f'lshr i64 {both}, {by}')} to i32"), 32
        moved = self._emit(f"shl i64 {both}, {by}")
        return self._emit(f"trunc i64 {self._emit(f'lshr i64 {moved}, 32')} to i32"), 32
