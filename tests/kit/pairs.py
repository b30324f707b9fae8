"""Pairs in place of products: every two values of two parameters meet in a case, and some cases more differ from commit to commit."""

import random
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

from kit.fuzz import FIRST


def pairs(*values: Sequence[Any], more: int = 0) -> list[tuple[Any, ...]]:
    """Cases of these parameters: greedily, each is the one of some that has the most pairs which no case before it has."""
    whole, rng = list(product(*(range(len(one)) for one in values))), random.Random(0)
    missing = {pair for case in whole for pair in _pairs(case)}
    chosen: list[tuple[int, ...]] = []
    while missing:
        best = max(rng.sample(whole, min(len(whole), 100)), key=lambda case: len(missing & _pairs(case)))
        if missing & _pairs(best):
            chosen.append(best)
            missing -= _pairs(best)
    left = [case for case in whole if case not in chosen]
    chosen += random.Random(FIRST).sample(left, min(more, len(left)))
    return [tuple(one[at] for one, at in zip(values, case, strict=True)) for case in sorted(chosen)]


def _pairs(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(combinations(enumerate(case), 2))
