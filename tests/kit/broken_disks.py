"""What happens to the logs of brokers on their disks: compaction, other batches, entries that come again, segments, and damage."""

import random
from collections.abc import Callable

from kit.encoder import batch
from kit.leaders import Entry, History, encoded
from kit.streams import GZIP, NONE


def compacted(rng: random.Random, log: list[Entry], _: History) -> list[Entry]:
    """Some records and some entries are removed; the last entry stays, and offsets stay."""
    found = []
    for entry in log[:-1]:
        kept = [one for one in entry.records if rng.random() < 0.7]
        if entry.is_control or len(kept) == len(entry.records):
            found.append(entry)
        elif entry.magic == 2 and (kept or rng.random() < 0.1):
            data = batch(kept, base_offset=entry.base, last_offset=entry.last, leader_epoch=entry.epoch)
            found.append(Entry(data, entry.base, entry.last, entry.epoch, 2, tuple(kept)))
        elif kept:
            found += encoded(entry.magic, rng.choice((NONE, GZIP)), kept, -1, kept[-1].offset)
    return [*found, log[-1]]


def batched_anew(rng: random.Random, log: list[Entry], _: History) -> list[Entry]:
    """The same records in other entries, perhaps in another format."""
    found: list[Entry] = []
    to = rng.choice((None, None, None, 2, 1))
    if any(one.is_control or one.magic == 0 for one in log):
        to = None
    rest, start = list(log), rng.randrange(len(log))
    found, rest = rest[:start], rest[start:]
    while rest:
        first, run = rest[0], [rest.pop(0)]
        while rest and not first.is_control and not rest[0].is_control and (rest[0].epoch, rest[0].magic) == (first.epoch, first.magic):
            run.append(rest.pop(0))
        if first.is_control:
            found += run
            continue
        records, codec = [one for entry in run for one in entry.records], rng.choice((NONE, GZIP))
        while records:
            own = records[: rng.choice((1, 2, 3, 5, 8))]
            records = records[len(own) :]
            magic = first.magic if to is None else to
            found += encoded(magic, codec, own, first.epoch, own[-1].offset)
    return found


def written_twice(rng: random.Random, log: list[Entry], _: History) -> list[Entry]:
    """Entries that are there come again: at once or later, or with the entries after them."""
    low = rng.randrange(len(log))
    high = min(len(log), low + rng.choice((1, 1, 2, 3)))
    again = log[low:high]
    if rng.random() < 0.3 and again[0].magic == 2 and not any(one.is_control or one.epoch != again[0].epoch for one in again):
        # In other batches, so that some offsets of an entry come again.
        records = [one for entry in again for one in entry.records][rng.randrange(2) :]
        again = encoded(2, NONE, records, again[0].epoch, records[-1].offset) if records else []
    after = rng.choice((high, high, min(len(log), high + rng.randrange(3))))
    return [*log[:after], *again, *log[after:]]


def not_truncated(rng: random.Random, log: list[Entry], history: History) -> list[Entry]:
    """A broker that went on with a new leader's entries behind those of the old one, which it had to remove."""
    others = [one for one in history.logs if one and one[-1] not in log]
    if not others:
        return log
    other = rng.choice(others)
    common = next((i for i, (one, there) in enumerate(zip(log, other, strict=False)) if one is not there), min(len(log), len(other)))
    return [*log, *other[common:]] if log[-1].epoch <= other[-1].epoch else [*other, *log[common:]]


def rolled(rng: random.Random, log: list[Entry], first: int, calm: bool) -> dict[int, list[Entry]]:
    """Segments by base offset; they begin where all before lies below and all after above."""
    places = [
        i
        for i in range(1, len(log))
        if max(one.last for one in log[:i]) < min(one.base for one in log[i:])
    ]  # fmt: skip
    cuts = sorted(rng.sample(places, rng.randint(0, min(3, len(places)))))
    pieces = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    found = {min(one.base for one in own): own for own in pieces} if log else {first: []}
    if log and rng.random() < 0.1:
        # It has rolled, and nothing was written since.
        found[max(one.last for one in log) + 1] = []
    if len(found) > 1 and not calm and rng.random() < 0.1:
        # Retention.
        del found[min(found)]
    return found


def mix(rng: random.Random, segments: list[dict[int, list[Entry]]], history: History, traits: list[str]) -> None:
    """A segment of another broker lies in a folder."""
    other = rng.choice(history.logs)
    number = rng.randrange(len(segments))
    if not other:
        return
    low = rng.randrange(len(other))
    some = other[low : low + rng.randint(1, 5)]
    # Without leader epochs it would have to be guessed which of two files is the stranger.
    if some[0].magic == 2 and some[0].base not in segments[number]:
        segments[number][some[0].base] = some
        traits.append(f"{number}: a segment {some[0].base} of another broker")


def damaged(rng: random.Random, entries: list[Entry], calm: bool) -> tuple[bytes, str]:
    """Bytes of a segment with one or two accidents."""
    data = b"".join(one.data for one in entries)
    kind = "payload" if calm else rng.choice(list(DAMAGE))
    for _ in range(rng.choice((1, 1, 2))):
        starts = [sum(len(one.data) for one in entries[:i]) for i in range(len(entries) + 1)]
        data = DAMAGE[kind](rng, data, [one for one in starts if one <= len(data)])
    return data, kind


def _flip(data: bytes, at: int, rng: random.Random) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :] if at < len(data) else data


def _payload(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    at = rng.choice(starts)
    end = min((one for one in starts if one > at), default=len(data))
    return _flip(data, rng.randrange(min(at + (61 if data[at + 16 : at + 17] == b"\2" else 18), end - 1), end), rng) if at < end else data


def _header(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    """All but the base offset, the length and the leader epoch."""
    return _flip(data, rng.choice(starts) + rng.choice((16, 17, 18, 20, 22, *range(23, 27), *range(27, 61))), rng)


def _length(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    return _flip(data, rng.choice(starts) + rng.randrange(8, 12), rng)


def _overwritten(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    """Other bytes; no base offset and no leader epoch is damaged in part, since no checksum covers them."""
    low = rng.choice((rng.choice(starts), rng.randrange(len(data) + 1)))
    high = min(len(data), low + rng.choice((10, 80, 80, 200, 600)))
    low, high = (max((at for at in starts if edge - 16 < at <= edge), default=edge) for edge in (low, high))
    return data[:low] + rng.choice((bytes, rng.randbytes, _text))(max(high - low, 0)) + data[max(high, low) :]


def _text(size: int) -> bytes:
    return (b"2024-01-01 00:00:00 INFO a line of another file\n" * (size // 48 + 1))[:size]


def _cut(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    return data[: rng.choice((rng.choice(starts), rng.randrange(len(data) + 1)))]


def _zeros(rng: random.Random, data: bytes, starts: list[int]) -> bytes:
    kept = len(data) if rng.random() < 0.3 else rng.choice(starts)
    return data[:kept] + bytes(rng.choice((max(len(data) - kept, 30), 300)))


DAMAGE: dict[str, Callable[[random.Random, bytes, list[int]], bytes]] = {
    "payload": _payload,
    "header": _header,
    "length": _length,
    "overwritten": _overwritten,
    "cut": _cut,
    "zeros": _zeros,
    "emptied": lambda *_: b"",
    "removed": lambda *_: b"",
}
