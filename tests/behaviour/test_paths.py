"""Each fast path and the general path return the same of whole and of damaged logs, and KOLUMN_PATHS turns off what it says."""

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit import json_values
from kit.avro_writer import EVERYTHING, Writer, damaged, random_value
from kit.mutate import make_segment, mutate
from kit.paths import FAST, GENERAL, counted, without
from kit.random_logs import KINDS, TIME, Log, source_of
from kolumn.core import paths

DATA = Path(__file__).parent.parent / "data" / "corpus"
COLUMNS = ["offset", "timestamp", "key", "value", "headers", "sequence", "tombstone", "topic", "position", "codec", "isControl"]
READS: list[dict[str, Any]] = [
    {"threads": 2},
    {"threads": 2, "errors": "skip"},
    {"threads": 1, "errors": "skip", "on_damage": None, "include_control": True},
    {"threads": 2, "errors": "skip", "binary": "view", "chunk_bytes": 2000},
    {"threads": 1, "errors": "skip", "on_damage": None, "check_crcs": False, "memory_bytes": 500},
    {"threads": 1, "errors": "skip", "columns": ["timestampMs", "key", "controlType"], "include_control": True},
]


def brokers(folder: Path) -> Path:
    """A log directory with partitions that brokers wrote."""
    for one in sorted(DATA.glob("*/*-0"))[::2]:
        shutil.copytree(one, folder / one.name)
    return folder


def mutants(folder: Path, seed: int) -> Path:
    """A log directory of which every other segment is damaged."""
    rng = random.Random(seed)
    for partition in range(20):
        (folder / f"t-{partition}").mkdir(parents=True)
        entries = make_segment(rng)
        data = mutate(rng, entries).data if partition % 2 else b"".join(entries)
        (folder / f"t-{partition}" / f"{int.from_bytes(entries[0][:8], 'big'):020}.log").write_bytes(data)
    return folder


def rows(source: Any, **options: Any) -> Any:
    """Rows and the damage that was told, or the error."""
    damage: list[str] = []
    if "on_damage" in options:
        options["on_damage"] = lambda one: damage.append(str(one))
    try:
        found = kolumn.read(source, **{"columns": COLUMNS, **options})
    except kolumn.KolumnError as error:
        return str(error)
    found.validate(full=True)
    # NaN equals NaN in a text.
    return repr(found.to_pydict()) if options.get("value_format") else found, damage


def same(tmp_path: Path, chosen: Iterable[str], ask: Callable[[Path], Any]) -> None:
    """Ask with and without each of some paths, which has to be taken once and not to be taken once."""
    with counted() as calls:
        expected = ask(tmp_path / "fast")
    assert [one for one in chosen if not calls[one]] == []
    for off in (*chosen, GENERAL):
        with counted() as calls, without(off):
            found = ask(tmp_path / off)
        wrong = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
        assert not wrong, (off, len(wrong), wrong[0])
        assert not any(calls[one] for one in (FAST if off == GENERAL else [off])), (off, calls)
        assert off != GENERAL or calls[GENERAL]


READING = (paths.STREAMED, paths.MESSAGES, paths.SHORT, paths.TOGETHER)


def test_reads(tmp_path: Path) -> None:
    sources = [brokers(tmp_path / "brokers"), *(mutants(tmp_path / str(seed), seed) for seed in range(5))]
    same(tmp_path, READING, lambda _: [rows(source, **options) for source in sources for options in READS])


def rewritten(call: Callable[..., Any], source: Path, out: Path, **options: Any) -> Any:
    """What a rewriter wrote and told, or the error."""
    try:
        done = call(source, out, **options)
    except kolumn.KolumnError as error:
        return str(error).replace(str(out.parent), "")
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    damage = [str(one).replace(str(out.parent), "") for one in done.damage]
    return files, done.records, damage, str(getattr(done, "lost", ""))


def logs(folder: Path) -> list[Path]:
    """Partitions with batches of all kinds, of which some are damaged."""
    made, rng = [], random.Random(3)
    for number, kinds in enumerate((KINDS, KINDS[:2], ("plain",), ("headers", "odd"))):
        log = Log(number, kinds, 30)
        segments = [bytearray(log.segment(12)) for _ in range(3)]
        made.append(source_of(folder / str(number), list(map(bytes, segments))))
        segments[1][rng.randrange(8, len(segments[1]))] ^= 1 << rng.randrange(8)
        made.append(source_of(folder / f"{number}-damaged", list(map(bytes, segments))))
    return made


def test_compaction(tmp_path: Path) -> None:
    sources = [*logs(tmp_path / "logs"), *sorted(DATA.glob("*/*compact-*0"))]

    def ask(out: Path) -> Any:
        return [
            rewritten(kolumn.compact, source, out / str(number) / errors, include_active=True, now=TIME, errors=errors)
            for number, source in enumerate(sources)
            for errors in ("raise", "skip")
        ]

    same(tmp_path, (paths.FILTER,), ask)


def test_conversion(tmp_path: Path) -> None:
    sources = [*logs(tmp_path / "logs"), *sorted(DATA.glob("v2-*/*-0"))]
    options = {"magic": 1, "errors": "skip", "codec": "none"}

    def ask(out: Path) -> Any:
        return [rewritten(kolumn.convert, source, out / str(number), **options) for number, source in enumerate(sources)]

    same(tmp_path, (paths.DOWN_CONVERSION,), ask)


def test_typed_values(tmp_path: Path) -> None:
    rng, asked = random.Random(1), list[tuple[list[bytes], dict[str, Any]]]()
    for _ in range(6):
        whole = json_values.flat_type(rng)
        some = [one.name for one in whole if not pa.types.is_nested(one.type) and one.name and "." not in one.name]
        values = json_values.alike(rng, whole, 150, 0.2)
        how = {"value_format": "json", "value_schema": pa.schema(whole)}
        asked += [(values, how), *((values, how | {"value_columns": one}) for one in some[:2])]
    avro = [Writer(rng).write(EVERYTHING, random_value(rng, EVERYTHING)) for _ in range(200)]
    avro += [damaged(rng, rng.choice(avro), rng.choice(avro)) for _ in range(100)]
    how = {"value_format": "avro", "value_schema": json.dumps(EVERYTHING), "value_framing": "none"}
    asked += [(avro, how | {"value_columns": one}) for one in ("id", "text", "note")]
    for number, (values, _) in enumerate(asked):
        kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / f"t-{number}")

    def ask(_: Path) -> Any:
        return [rows(tmp_path / f"t-{n}", **how, columns=["value", "valueValid"]) for n, (_, how) in enumerate(asked)]

    same(tmp_path, (paths.JSON, paths.AVRO_WALK), ask)


def test_every_fast_path_is_compared() -> None:
    mine = {*READING, paths.FILTER, paths.DOWN_CONVERSION, paths.JSON, paths.AVRO_WALK}
    assert mine == set(FAST)


@pytest.mark.parametrize("text", ["streamed", "-streamd", "-streamed,", "general,-short"])
def test_unknown_paths_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOLUMN_PATHS", text)
    paths.turned_off.cache_clear()
    with pytest.raises(kolumn.ArgumentError, match=r"KOLUMN_PATHS=.*expected general, or some of -streamed,-messages"):
        kolumn.read(DATA / "v2-java" / "java-zstd-0")
