"""What a class file says of a class to others: its kind, and the fields and methods that other packages may use."""

import struct
from dataclasses import dataclass

PUBLIC, PROTECTED, STATIC, FINAL, INTERFACE, ABSTRACT, SYNTHETIC, ENUM = 0x1, 0x4, 0x8, 0x10, 0x200, 0x400, 0x1000, 0x4000
_KIND = PUBLIC | FINAL | INTERFACE | ABSTRACT | ENUM
_MEMBER = PUBLIC | PROTECTED | STATIC | FINAL | ABSTRACT
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of a constant after its tag; a text, 1, says it itself."""


@dataclass
class ClassFile:
    """A class as others see it."""

    flags: int
    parent: str
    interfaces: set[str]
    members: dict[tuple[str, str], tuple[int, tuple[str, ...]]]  # by name and descriptor: flags, and checked and named exceptions

    @classmethod
    def of(cls, data: bytes) -> "ClassFile":
        reader = _Reader(data)
        flags, _, parent, count = reader.shorts(4)
        interfaces = {reader.name(one) for one in reader.shorts(count)}
        members = {}
        for _ in range(2):
            for _ in range(reader.shorts(1)[0]):
                access, name, kind, attributes = reader.shorts(4)
                found = [reader.attribute() for _ in range(attributes)]
                if access & (PUBLIC | PROTECTED) and not access & SYNTHETIC:
                    thrown = tuple(reader.name(one) for label, content in found if label == "Exceptions" for one in content[1:])
                    members[reader.texts[name], reader.texts[kind]] = access & _MEMBER, thrown
        return cls(flags & _KIND, reader.name(parent), interfaces, members)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 8
        self.texts: dict[int, str] = {}
        self._names: dict[int, int] = {}
        (count,) = self.shorts(1)
        number = 1
        while number < count:
            tag = data[self._at]
            self._at += 1
            if tag == 1:
                (size,) = self.shorts(1)
                self.texts[number] = data[self._at : self._at + size].decode()
                self._at += size
            else:
                if tag == 7:
                    (self._names[number],) = struct.unpack_from(">H", data, self._at)
                self._at += _SIZES[tag]
            # Numbers of 64 bits take two places.
            number += 2 if tag in (5, 6) else 1

    def shorts(self, count: int) -> tuple[int, ...]:
        found = struct.unpack_from(f">{count}H", self._data, self._at)
        self._at += 2 * count
        return found

    def attribute(self) -> tuple[str, tuple[int, ...]]:
        """Its name and its content as numbers of 16 bits."""
        (name,) = self.shorts(1)
        (size,) = struct.unpack_from(">I", self._data, self._at)
        self._at += 4 + size
        return self.texts[name], struct.unpack_from(f">{size // 2}H", self._data, self._at - size)

    def name(self, number: int) -> str:
        """Of the class that a constant names."""
        return self.texts[self._names[number]] if number else ""
