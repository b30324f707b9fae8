"""Text that is not UTF-8, decoded as Java's ``String`` does: header keys reach Kafka's users that way.

Java and Python replace malformed bytes by U+FFFD, but not by the same number of them: an encoded surrogate (ED A0 80) becomes
one in Java and three in Python, and Java makes one for an incomplete sequence at the end, however many bytes are missing.
"""

import codecs

_NAME = "kolumn.java"


def decode(data: bytes) -> str:
    """The string that ``new String(data, UTF_8)`` makes in Java 17."""
    return data.decode("utf-8", _NAME)


def _malformed(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd", error.start + malformed_length(error.object, error.start)


def malformed_length(data: bytes, at: int) -> int:
    """How many bytes of the malformed sequence at ``at`` one U+FFFD replaces (``malformed3``, ``malformed4`` of Java's String)."""
    first, rest = data[at], data[at + 1 : at + 4]
    follows = [0x80 <= byte < 0xC0 for byte in rest]
    if 0xE0 <= first < 0xF0:
        if not rest or not follows[0] or (first == 0xE0 and rest[0] < 0xA0):
            return 1
        return 3 if len(rest) > 1 and follows[1] else 2
    if 0xF0 <= first < 0xF5:
        if not rest or not follows[0] or (first == 0xF0 and rest[0] < 0x90) or (first == 0xF4 and rest[0] >= 0x90):
            return 1
        return 3 if len(rest) > 1 and follows[1] else 2
    return 1


codecs.register_error(_NAME, _malformed)
