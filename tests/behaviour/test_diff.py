"""What two copies of topic-partitions have that is not the same: `kolumn.diff` against a reference that reads every record."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit import oracle
from kit.asked import invoked, put
from kit.corpus import HERE as CORPUS
from kit.elections import Case, make
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch, message, wrapper
from kit.fuzz import FIRST, MUTANTS, failing
from kit.merge_reference import File, contents, same
from kit.streams import GZIP

TIME = 1_700_000_000_000
KINDS = {"only in A", "only in B", "content differs", "damaged in A", "damaged in B"}


def rows(first: int, count: int, mark: str = "") -> list[Record]:
    return [Record(at, b"k%d" % (at % 5), b"%d%s" % (at, mark.encode()), TIME + at) for at in range(first, first + count)]


def tens(first: int, stop: int, mark: str = "", **how: Any) -> list[bytes]:
    return [batch(rows(at, 10, mark), **how) for at in range(first, stop, 10)]


def pair(folder: Path, a: list[bytes], b: list[bytes], **bases: int) -> tuple[Path, Path]:
    """Folders of one partition with a segment each."""
    put(folder / "a" / "t-0", *a, base=bases.get("a", 0))
    put(folder / "b" / "t-0", *b, base=bases.get("b", 0))
    return folder / "a" / "t-0", folder / "b" / "t-0"


def told(found: kolumn.Difference, *more: str) -> list[tuple[Any, ...]]:
    names = ("kind", "firstOffset", "lastOffset", "records", *more)
    return [tuple(row[name] for name in names) for row in found.differences.to_pylist()]


# The reference: every intact record of both sides, by offset.


def expected(case: Case) -> dict[int, str]:
    """The kind of each offset that differs, of calm logs: what is damaged in them has its header."""
    known: list[dict[int, oracle.Row]] = []
    hurt: list[set[int]] = []
    for files in case.copies[:2]:
        entries, gaps = contents(files)
        known.append({row.offset: row for entry in entries for row in entry.rows})
        hurt.append({at for gap in gaps for base, last, _ in gap.headers() or () for at in range(base, last + 1)})
    kinds = {}
    for at in sorted(known[0].keys() | known[1].keys()):
        left, right = known[0].get(at), known[1].get(at)
        if left is None or right is None:
            side, other = ("AB" if right is None else "BA")
            lost = hurt["AB".index(other)]
            kinds[at] = f"damaged in {other}" if at in lost else f"only in {side}"
        elif not same(left, right):
            kinds[at] = "content differs"
    return kinds


def compare(seed: int, folder: Path) -> None:
    """Calm logs of brokers: each record that differs is listed with its kind, and no other."""
    case = make(seed, folder, calm=True)
    if len(case.folders) < 2 or not all(case.copies[:2]):
        return
    wanted = expected(case)
    found = kolumn.diff(*case.folders[:2], records=True, check_crcs=True)
    assert {row["offset"]: row["kind"] for row in found.records.to_pylist()} == wanted, case.traits
    spans = [(kind, low, high) for kind, low, high, _ in told(found) if high is not None]
    for at, kind in wanted.items():
        assert any(own == kind and low <= at <= high for own, low, high in spans), (at, case.traits)
    quick = kolumn.diff(*case.folders[:2], check_crcs=True)
    assert told(quick, "leaderEpochA", "leaderEpochB") == told(found, "leaderEpochA", "leaderEpochB"), case.traits


def compare_hurt(seed: int, folder: Path) -> None:
    """Logs with any damage, in any format and order: no record that differs is silent, and equal logs are equal."""
    case = make(seed, folder)
    if len(case.folders) < 2 or not all(case.copies[:2]):
        return
    found = kolumn.diff(*case.folders[:2], check_crcs=True)
    first: list[dict[int, oracle.Row]] = []
    for files in case.copies[:2]:
        own: dict[int, oracle.Row] = {}
        for entry in contents(files)[0]:
            for row in entry.rows:
                own.setdefault(row.offset, row)
        first.append(own)
    spans = [(low, low if high is None else high) for kind, low, high, _ in told(found) if kind in KINDS]
    for at in first[0].keys() | first[1].keys():
        left, right = first[0].get(at), first[1].get(at)
        if left is None or right is None or not same(left, right):
            assert any(low <= at <= high for low, high in spans), (at, case.traits)
    for own in case.folders[:2]:
        same_log = kolumn.diff(own, own, check_crcs=True)
        assert {kind[:7] for kind, *_ in told(same_log)} <= {"damaged"}, case.traits


def test_each_record_of_diverged_brokers_is_told() -> None:
    assert not failing(compare, range(FIRST, FIRST + MUTANTS // 10))


def test_no_difference_of_damaged_logs_is_silent() -> None:
    assert not failing(compare_hurt, range(FIRST, FIRST + MUTANTS // 10))
