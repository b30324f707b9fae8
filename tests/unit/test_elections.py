"""Which strands of copies belong to the log, by leader epochs; and which offsets and epochs are taken for damaged."""

from collections.abc import Sequence

import numpy as np
import pytest

from kolumn.copies.elections import EpochRun, Known, Notes, Strand, elect, placed, strands, strands_of, trusted_epochs, untrusted_epochs
from kolumn.source.segments import HIGHEST

Runs = list[Known]
DAMAGED = [(0, 9, 0), (20, 29, 1)]


def strand(number: int, runs: Runs, headers: Sequence[Known] = (), doubts: Sequence[Known] = ()) -> Strand:
    one = Strand(f"b{number}", number)
    last = max(high for _, high, _ in (*runs, *headers))
    one.add(Notes(one.folder, 0, last, [EpochRun(*run, 9, (0, 0)) for run in runs], list(headers), list(doubts)))
    return one


def borders(*copies: Strand, fills: bool = False) -> list[int | None]:
    """The stale offset of each, None if all of it belongs."""
    elect(list(copies), lambda *_: fills)
    return [None if one.stale == HIGHEST else one.stale for one in copies]


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([[(0, 9, 0)], [(0, 9, 0)]], [None, None]),
        # A follower that lags, and one that was the leader before: its tail goes.
        ([[(0, 9, 0), (10, 19, 1)], [(0, 7, 0)]], [None, None]),
        ([[(0, 9, 0), (10, 19, 1)], [(0, 14, 0)]], [None, 10]),
        # The newest leader does not have what an earlier one wrote, and had more of the one before: KIP-279.
        ([[(0, 4, 0), (5, 8, 1)], [(0, 9, 0), (10, 19, 2)]], [5, None]),
        # Both know the newest epoch, so they are one log up to there, whatever holes they have.
        ([[(0, 4, 0), (30, 40, 2)], [(10, 20, 1), (25, 35, 2)]], [None, None]),
        # Beyond the newest leader's end only its own records count.
        ([[(0, 9, 0), (10, 12, 3)], [(0, 20, 0)], [(0, 9, 0), (10, 20, 3)]], [None, 10, None]),
        # Halves of a log; and one that ends where an earlier leader still wrote.
        ([[(20, 40, 2)], [(0, 19, 0)]], [None, None]),
        ([[(20, 40, 2)], [(0, 25, 0)]], [None, 20]),
    ],
)
def test_the_newest_epoch_decides(copies: list[Runs], expected: list[int | None]) -> None:
    assert borders(*(strand(i, runs) for i, runs in enumerate(copies))) == expected
    backwards = [strand(i, runs) for i, runs in enumerate(copies[::-1])]
    assert borders(*backwards)[::-1] == expected


def test_damage_of_the_log_at_a_change_of_leaders() -> None:
    """Where its own bytes are damaged, another copy's count if a header tells the epoch, or if they fill the damage."""
    assert borders(strand(0, DAMAGED, doubts=[(10, 19, 500)]), strand(1, [(0, 15, 0)])) == [None, 10]
    assert borders(strand(0, DAMAGED, doubts=[(10, 19, 500)]), strand(1, [(0, 15, 0)]), fills=True) == [None, None]
    assert borders(strand(0, DAMAGED, headers=[(10, 19, 0)]), strand(1, [(0, 25, 0)])) == [None, 20]
    assert borders(strand(0, DAMAGED, headers=[(10, 19, 1)]), strand(1, [(0, 25, 0)])) == [None, 10]
    # The same epoch on both sides is known between.
    assert borders(strand(0, [(0, 29, 1)], doubts=[(10, 19, 500)]), strand(1, [(0, 15, 1)])) == [None, None]
    # An epoch that no intact entry has is damaged as its batch is.
    assert borders(strand(0, [(0, 9, 0)], headers=[(10, 19, 7)]), strand(1, [(0, 25, 0)])) == [None, None]
    doubtful = strand(0, [(10, 19, 6)], headers=[(0, 9, 0)], doubts=[(0, 9, 500)])
    assert borders(doubtful, strand(1, [(0, 9, 1)])) == [None, 0]


def note(folder: str, *runs: tuple[int, int, int, int], content: tuple[int, int] = (1, 1)) -> Notes:
    return Notes(folder, runs[0][0], runs[-1][1], [EpochRun(*run, content) for run in runs], [], [])


def test_strands_end_where_offsets_or_epochs_go_back() -> None:
    notes = [note("a", (0, 9, 0, 3), (10, 19, 1, 3)), note("a", (20, 29, 1, 3)), note("a", (15, 24, 1, 3)), note("a", (30, 39, 0, 3))]
    one, other, third, fourth = strands_of(notes)
    assert one is other
    assert (len({one, third, fourth}), [(run.low, run.high, run.epoch) for run in one.runs]) == (3, [(0, 9, 0), (10, 29, 1)])


def test_epochs_that_one_damaged_entry_alone_has() -> None:
    notes = [note("a", (0, 9, 4, 3), (10, 14, 1028, 1)), note("b", (0, 9, 4, 3), (10, 14, 5, 1))]
    assert (untrusted_epochs(notes, lambda _: False), untrusted_epochs(notes, lambda run: run.epoch == 5)) == ({1028}, {5, 1028})
    followed = [note("a", (0, 9, 0, 3), (10, 14, 1, 1)), note("a", (15, 29, 0, 3))]
    assert untrusted_epochs(followed, lambda _: False) == {1}
    # A block that was written again is no contradiction.
    again = [note("a", (0, 9, 0, 3), (10, 14, 1, 1)), note("a", (5, 9, 0, 3))]
    assert untrusted_epochs(again, lambda _: False) == set()
    twice = [note("a", (0, 9, 4, 3), (10, 14, 1028, 1)), note("b", (0, 9, 4, 3), (10, 14, 1028, 1))]
    assert untrusted_epochs(twice, lambda _: True) == set()
    # Epochs after offsets that go back are no contradiction.
    base, last = np.array([0, 5, 2, 5, 9]), np.array([4, 8, 4, 8, 10])
    epochs, cuts = strands(base, last, np.array([7, 8, 7, 7, 7]))
    assert (epochs.tolist(), cuts.tolist()) == ([7, 8, 7, 7, 7], [2])


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1]),
        ([0, 9, 0, 1], [0, -1, 0, 1]),
        ([1, 1, 0, 1], [1, 1, -1, 1]),
        ([7, 0, 0, 1], [-1, 0, 0, 1]),
        ([0, 1, 1, 0], [0, 1, 1, -1]),
        # Two that go back were written so; without an epoch nothing is known.
        ([1, 1, 0, 0], [1, 1, 0, 0]),
        ([-1, 0, -1, 3, -1], [-1, 0, -1, 3, -1]),
    ],
)
def test_an_epoch_that_contradicts_its_neighbours_is_damaged(epochs: list[int], expected: list[int]) -> None:
    assert trusted_epochs(np.array(epochs)).tolist() == expected


@pytest.mark.parametrize(
    ("entries", "believed", "cuts"),
    [
        ([(0, 1), (2, 3), (4, 5)], "111", []),
        # A damaged offset: what it could have had is missing.
        ([(0, 1), (90, 91), (4, 5), (6, 7)], "1011", []),
        ([(0, 9), (10, 11), (1, 2), (14, 15), (16, 17)], "11011", []),
        # A stretch again, one entry again, one that fills a gap, and one where nothing is missing.
        ([(0, 4), (5, 9), (0, 4), (5, 9)], "1111", [2]),
        ([(0, 4), (5, 9), (5, 9)], "111", [2]),
        ([(0, 0), (1, 1), (3, 3), (2, 2), (4, 4)], "11111", [3]),
        ([(10, 19), (5, 9), (20, 29)], "111", [1]),
        ([(0, 9), (10, 29), (15, 24), (25, 34)], "1111", [2]),
        # What adjoins the one before it, or begins the file.
        ([(0, 9), (10, 10), (10, 15), (16, 20)], "1111", [2]),
        ([(0, 0), (0, 5), (6, 9)], "111", [1]),
    ],
)
def test_offsets_that_go_back(entries: list[tuple[int, int]], believed: str, cuts: list[int]) -> None:
    base, last = np.array(entries).T
    content = np.column_stack([base, last])
    flags = placed(base, last, content, 0)
    assert "".join(str(int(flag)) for flag in flags) == believed
    assert strands(base[flags], last[flags], np.full(int(flags.sum()), -1))[1].tolist() == cuts
