"""PTX as text becomes a list of instructions; nothing is known here of what they do."""

import re
from dataclasses import dataclass, field

import numpy as np

from kolumn.core.arrays import Bytes

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
