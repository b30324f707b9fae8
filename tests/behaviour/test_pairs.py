"""Every two features of a source together, by every way to read it: the rows are those that were written, and what is left out is said.

Several types are no one table: there a sentence says so, and what to do. Spark's part is `tests/spark/test_pairs.py`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from polars import collect_all
from typer.testing import Result

import kit.object_store  # noqa: F401, makes the scheme known here
import kolumn
from kit.asked import invoked
from kit.outcome import raises
from kit.pairs import PAIRS, TYPES_DIFFER, Disks, Rows, rows_of

SCHEME = "objects://"
Read = tuple[Rows, str]
"""What was read, and what was said."""


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, str]], Disks]:
    made: dict[tuple[str, str], Disks] = {}

    def of(pair: tuple[str, str]) -> Disks:
        return made.get(pair) or made.setdefault(pair, Disks(tmp_path_factory.mktemp("-".join(pair)), *pair))

    return of


def command(disks: Disks, *words: object, without: Iterable[str] = ()) -> Result:
    """What a command with the options does; its exit code has to tell of damage alone."""
    options = {name: value for name, value in disks.options.items() if name not in ("private_keys", *without)}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    done = invoked(*words, *flags, *(f"--key-file={name}={path}" for name, path in disks.keys.items()))
    assert done.exit_code == ("damaged stretch" in done.stderr), done.stderr
    return done


def cat(disks: Disks, target: Path) -> Read:
    done = command(disks, "cat", "--json", *disks.source(SCHEME))
    return rows_of(map(json.loads, done.stdout.splitlines())), done.stderr


def sql(disks: Disks, target: Path) -> Read:
    rows, said = Rows(), ""
    for topic in disks.topics:
        done = command(disks, "sql", "--json", *disks.source(SCHEME), f'SELECT * FROM {topic} ORDER BY partition, "offset"')
        rows |= rows_of(map(json.loads, done.stdout.splitlines()))
        said += done.stderr
    return rows, said


def to_parquet(disks: Disks, target: Path) -> Read:
    done = command(disks, "to-parquet", *disks.source(SCHEME), target)
    files = sorted(target.rglob("*.parquet"))
    return rows_of(row for file in files for row in pq.ParquetFile(file).read().to_pylist()), done.stderr


def polars(disks: Disks, target: Path) -> Read:
    skipped, source = kolumn.Skipped(), disks.source(SCHEME)
    if disks.features == {"typed", "topics"}:
        for reader in (kolumn.read, kolumn.scan_polars):
            raises(kolumn.ArgumentError, TYPES_DIFFER, reader, source, **disks.options)
        frames = [*kolumn.topics(source, on_damage=skipped, **disks.options).values()]
    else:
        frames = [kolumn.scan_polars(source, on_damage=skipped, **disks.options)]
    return rows_of(row for frame in collect_all(frames) for row in frame.to_dicts()), str(skipped)


@pytest.mark.parametrize("reader", [cat, sql, to_parquet, polars])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_rows(pair: tuple[str, str], reader: Callable[[Disks, Path], Read], disks: Callable[..., Disks], tmp_path: Path) -> None:
    own = disks(pair)
    rows, said = reader(own, tmp_path / "target")
    rows.pop("_schemas", None)
    assert rows == own.rows
    for words in own.said_of(committed="committed" in pair):
        assert re.search(words, said), (words, said)


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if "committed" in pair], ids="-".join)
def test_rows_after_an_open_transaction(pair: tuple[str, str], disks: Callable[..., Disks]) -> None:
    own, skipped = disks(pair), kolumn.Skipped()
    found = kolumn.read(own.source(SCHEME), open_transactions="skip", on_damage=skipped, **own.options)
    assert rows_of(found.to_pylist()) == own.settled
    assert "stops" not in str(skipped)


def table(page: str, caption: str) -> list[list[str]]:
    """The cells of a table of a report."""
    text = page.partition(f"<caption>{caption}</caption>")[2].partition("</table>")[0]
    return [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in text.split("</tr>")][1:-1]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_report(pair: tuple[str, str], disks: Callable[..., Disks], tmp_path: Path) -> None:
    """It counts the records of all transactions, and tells what became of these."""
    own, target = disks(pair), tmp_path / "report.html"
    done = command(own, "report", f"--output={target}", *own.source(SCHEME), without=("isolation_level", "errors"))
    page = target.read_text()
    names = ("topic", "partition", "records", "firstOffset", "lastOffset", "damagedStretches", "recordsLost")
    stats = json.loads(page.partition('id="stats">')[2].partition("</script>")[0])
    expected = []
    for log in own.logs:
        offsets = [row[0] for row in log.rows(committed=False)]
        expected.append((log.topic, log.partition, len(offsets), offsets[0], offsets[-1], len(log.damaged), len(log.lost())))
    assert [tuple(row[name] for name in names) for row in stats if row["topic"] != "_schemas"] == sorted(expected)
    if "committed" in pair:
        with_them = (log for log in own.logs if log.topic != "notes")
        states = table(page, "Records by the state of their transaction")
        assert {state: int(count) for state, count in states} == sum((log.states for log in with_them), Counter())
    lost = own.lost_values(committed=False)
    assert not lost or re.search(rf"\b{lost} values lost something", page)
    for words in own.said_of(committed=False):
        assert re.search(words, done.stderr)
