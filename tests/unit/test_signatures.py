"""Options of reads are one list: functions, commands, Spark and the documentation have them from there. Old names work, and warn."""

import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Set
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import pytest
import typer

import kolumn
from kit.command_line import run
from kit.corpus import HERE as CORPUS
from kit.outcome import raises
from kit.plain_spark import load
from kolumn import spark_plugin
from kolumn.cli import app
from kolumn.core import errors, keywords
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import DEFAULTS, OPTIONS, PAYLOAD_DEFAULTS, ChosenOptions, WholeOptions, options_in
from kolumn.formats import layouts
from kolumn.options import Options
from kolumn.spark_plugin import rapids
from kolumn.spark_plugin.read.options import LoadOptions
from kolumn.spark_plugin.write.writer import WriteOptions
from kolumn.writers.write import settings

ROOT = Path(__file__).resolve().parents[2]
Parameters = dict[str, inspect.Parameter]


def functions_of(module: Any) -> list[Callable[..., Any]]:
    found = (getattr(module, name) for name in module.__all__ if name[0].islower())
    return [function for function in found if inspect.isfunction(function)]


def parameters(function: Callable[..., Any]) -> Parameters:
    return dict(inspect.signature(function).parameters)


def label(function: Any) -> str | None:
    return None if isinstance(function, str | set) else f"{function.__module__.removeprefix('kolumn.')}.{function.__name__}"


PUBLIC = [function for module in (kolumn, spark_plugin, rapids) for function in functions_of(module)]
WRITE = parameters(kolumn.write)
# Filled in by `Options.of`: the default depends on the machine, the backend or other options.
OPEN = {"columns", "chunk_bytes", "threads"}
READERS = [kolumn.read, kolumn.scan, kolumn.scan_polars]
GPU_READERS = [kolumn.read_pylibcudf, kolumn.read_cudf, kolumn.scan_pylibcudf, kolumn.scan_cudf]
REWRITERS = [kolumn.convert, kolumn.compact, kolumn.space, spark_plugin.convert, spark_plugin.compact]
_NO_VALUES = {"value_as", "key_as", "value_errors", "key_errors"}
TAKEN: dict[Callable[..., Any], Set[str]] = {
    **dict.fromkeys(READERS, frozenset(OPTIONS)),
    **dict.fromkeys(GPU_READERS, OPTIONS.keys() - {"backend", "binary"}),
    **dict.fromkeys(REWRITERS, frozenset(WholeOptions.__annotations__)),
    spark_plugin.read_segments: OPTIONS.keys() - {"binary", "threads"},
    spark_plugin.export: OPTIONS.keys() - {"binary", "threads", "format"},
    **dict.fromkeys([kolumn.erase, spark_plugin.erase], frozenset(options_in(ChosenOptions)) - _NO_VALUES - {"replicas"}),
    kolumn.append: OPTIONS.keys()
    - {"start_offset", "end_offset", "start_timestamp", "end_timestamp", "binary", "include_deleted_segments", "open_transactions"},
    kolumn.follow: OPTIONS.keys() - {"end_offset", "end_timestamp", "include_deleted_segments", "include_snapshots", "open_transactions"},
    kolumn.history: OPTIONS.keys() - {"columns", "binary", "include_control", "isolation_level", "open_transactions", "key_as", "value_as"},
    kolumn.latest: OPTIONS.keys()
    - {
        "include_control",
        "isolation_level",
        "start_offset",
        "end_offset",
        "start_timestamp",
        "end_timestamp",
        "binary",
        "include_snapshots",
    },
}
NO_EFFECT: dict[Callable[..., Any], tuple[str, ...]] = {
    **dict.fromkeys(GPU_READERS, ("backend", "binary")),
    **dict.fromkeys([spark_plugin.read_segments, spark_plugin.export], ("binary", "threads")),
    kolumn.batches: ("columns", "start_offset", "isolation_level", "backend", "max_ratio", "value_format", "decode"),
    kolumn.verify: ("columns", "start_offset", "errors", "replicas", "include_control", "key_as", "value_errors", "decode"),
    kolumn.append: ("start_offset", "end_timestamp", "binary", "include_deleted_segments", "open_transactions"),
    kolumn.history: ("columns", "isolation_level", "value_as"),
    kolumn.follow: ("end_offset", "end_timestamp", "include_snapshots", "open_transactions", "limit"),
    kolumn.latest: ("start_offset", "end_timestamp", "include_control", "include_snapshots"),
    kolumn.apply_retention: ("errors", "check_crcs", "chunk_bytes", "max_ratio", "on_progress"),
    kolumn.recover: ("errors", "check_crcs", "replicas"),
    **dict.fromkeys([kolumn.erase, spark_plugin.erase], (*sorted(_NO_VALUES), "replicas")),
}


def test_the_checked_options_have_the_fields_and_the_defaults_of_the_list() -> None:
    kept = {field.name: field.default for field in fields(Options) if field.name not in ("typed", "remarks")}
    assert kept.keys() == OPTIONS.keys() - PAYLOAD_DEFAULTS.keys()
    assert [name for name in kept.keys() - OPEN if kept[name] != DEFAULTS[name]] == []
    assert {DEFAULTS[name] for name in OPEN} == {None}
    # What is open is filled in.
    given = {name: None for name, default in DEFAULTS.items() if default is None}
    assert Options.of(**given) == Options.of()
    made = Options.of(threads=1)
    assert (made.threads, made.columns[0]) == (1, "key")


@pytest.mark.parametrize("function", TAKEN, ids=label)
def test_functions_take_the_options_of_the_list(function: Callable[..., Any]) -> None:
    own = {name: one for name, one in parameters(function).items() if name in TAKEN[function]}
    assert own.keys() == TAKEN[function]
    assert [name for name, one in own.items() if (one.default, one.annotation) != (OPTIONS[name].default, OPTIONS[name].type)] == []
    assert {one.kind for one in own.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(("function", "name"), [(function, name) for function, names in NO_EFFECT.items() for name in names], ids=label)
def test_an_option_without_an_effect_is_refused_by_name(function: Callable[..., Any], name: str) -> None:
    assert name not in parameters(function)
    raises(ArgumentError, rf"option '{name}'.*: .*", function, None, "a", **{name: None})


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (kolumn.convert, kolumn.write, {"codec"}), (kolumn.compact, kolumn.write, set()),
        (kolumn.apply_retention, kolumn.write, {"format"}),
        (spark_plugin.convert, kolumn.convert, {"target"}), (spark_plugin.compact, kolumn.compact, {"target"}),
        (kolumn.erase, kolumn.recover, set()), (spark_plugin.erase, kolumn.erase, {"target"}),
        (kolumn.scan_cudf, kolumn.read_pylibcudf, set()), (kolumn.read, kolumn.scan, set()),
    ],
)  # fmt: skip
def test_parameters_of_one_name_are_one_option(one: Callable[..., Any], other: Callable[..., Any], differ: set[str]) -> None:
    left, right = parameters(one), parameters(other)
    names = (left.keys() & right.keys()) - differ
    assert names
    assert {name: left[name] for name in names} == {name: right[name] for name in names}


def test_defaults_of_a_write_in_spark() -> None:
    plain = WriteOptions.of({"path": "/nowhere"})
    defaults = {name: one.default for name, one in WRITE.items()}
    assert plain.how == settings(**{name: defaults[name] for name in inspect.signature(settings).parameters})
    assert (plain.segment_bytes, plain.index_interval_bytes) == (defaults["segment_bytes"], defaults["index_interval_bytes"])


def test_options_of_values_and_of_keys_are_the_same() -> None:
    for name in PAYLOAD_DEFAULTS.keys() - {"decode"}:
        own, other = OPTIONS[name], OPTIONS[re.sub("^(key|value)", lambda match: {"key": "value", "value": "key"}[match[1]], name)]
        assert (own.type, own.default) == (other.type, other.default)
    assert (get_args(keywords.Format), set(get_args(keywords.Codec))) == (layouts.FORMAT_NAMES, set(kolumn.formats.codecs.known.NAMES))


def test_every_option_is_documented() -> None:
    text = inspect.getdoc(kolumn.scan) or ""
    section = text[text.index("Parameters\n---") : text.index("Returns\n---")]
    documented = [name for line in re.findall(r"^(\w[\w, ]*) : ", section, re.MULTILINE) for name in line.split(", ")]
    assert sorted(documented) == sorted(parameters(kolumn.scan))
    assert "errors : default 'raise'\n    'raise' stops at the first damage" in section
    page = (ROOT / "docs" / "reference" / "options.md").read_text()
    described = {name for cell in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}
    assert OPTIONS.keys() - described == set()


def test_commands_have_the_defaults_of_the_list() -> None:
    different = {"errors"}
    # They read headers alone, unless they are asked for more.
    by_headers = {("diff", "check_crcs"), ("audit", "check_crcs")}
    group: Any = typer.main.get_command(app)
    seen = set()
    for command in group.commands.values():
        for one in command.params:
            known = one.name in OPTIONS and one.name not in different and (command.name, one.name) not in by_headers
            if known and isinstance(one.default, str | bool):
                assert one.default == DEFAULTS[one.name], (command.name, one.name)
                seen.add(one.name)
    assert {"replicas", "check_crcs", "format", "isolation_level", "include_headers"} <= seen


def test_spark_has_the_options_of_the_list() -> None:
    given = {"includeHeaders": "true", "startOffset": "3", "maxRatio": "2.5", "columns": "key, offset", "valueFormat": "json"}
    made = LoadOptions.of({"path": "a", "privateKeys": "k=/p", "errors": "skip", **given}).decode
    assert (made.include_headers, made.start_offset, made.max_ratio, made.columns[:2]) == (True, 3, 2.5, ("key", "offset"))
    assert (made.private_keys, made.errors, made.typed[0].format) == ((("k", "/p"),), "skip", "json")
    # Tasks get the time that the driver resolved.
    made = LoadOptions.of({"path": "a", "startTimestamp": "yesterday", "valueFormat": "registry", "valueAsOf": "yesterday"}).decode
    assert made.start_timestamp == made.typed[0].as_of
    assert isinstance(made.start_timestamp, int)
    raises(ArgumentError, "unknown option 'since', did you mean 'startTimestamp'", LoadOptions.of, {"path": "a", "since": "7d"})


@pytest.mark.parametrize("function", [function for function in PUBLIC if parameters(function)], ids=label)
def test_parameters_have_types_and_a_keyword_that_does_not_exist_is_refused(function: Callable[..., Any]) -> None:
    empty, found = inspect.Parameter.empty, parameters(function).values()
    assert not {one.kind for one in found} & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert not [one.name for one in found if one.annotation is empty]
    if function in (rapids.explain, spark_plugin.register, spark_plugin.configure):
        return
    needed = [None for one in found if one.default is empty and one.kind is not inspect.Parameter.KEYWORD_ONLY]
    for kind in (ArgumentError, TypeError):
        raises(kind, "unknown option 'colour'", function, *needed, colour="red")


@pytest.mark.parametrize(
    ("function", "name", "near"),
    [
        (kolumn.read, "treads", "threads"), (kolumn.write, "codek", "codec"), (kolumn.apply_retention, "retention", "retention_ms"),
        (kolumn.read, "since", "start_timestamp"), (kolumn.scan, "until", "end_timestamp"), (kolumn.read, "offset", "start_offset"),
        (kolumn.read, "schema", "value_schema"), (kolumn.scan_polars, "registry", "value_schemas"),
    ],
    ids=label,
)  # fmt: skip
def test_the_nearest_one_is_named(function: Callable[..., Any], name: str, near: str) -> None:
    raises(TypeError, rf"unknown option '{name}', did you mean '{near}'\? The docstring of \w+ lists all$", function, "a", "b", **{name: 1})


def test_what_no_option_does() -> None:
    raises(ArgumentError, r"unknown option 'where': .* kolumn\.scan_polars\(source\).* kolumn\.history", kolumn.read, LOG, where="x")
    raises(ArgumentError, "format='avro': .* value_format='avro'", kolumn.read, LOG, format="avro")
    assert set(keywords.MEANT.values()) <= {*OPTIONS, "limit", "retention_ms"}
    assert not keywords.MEANT.keys() & OPTIONS.keys()


def test_errors_are_pythons_own_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(raises(FileNotFoundError, "no such file or directory", kolumn.read, tmp_path / "nowhere"), ArgumentError)
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(bytes(100))
    monkeypatch.setattr("kolumn.source.segment_file.os.open", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert isinstance(raises(OSError, f"{log.name}: cannot be opened: Permission denied", kolumn.read, log), kolumn.KolumnError)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "polars.io.plugins", None)
    assert isinstance(raises(ImportError, r"pip install polars", kolumn.scan_polars, log), kolumn.MissingError)


@pytest.mark.parametrize("kind", [errors.StorageError, errors.MissingPathError, errors.MissingPackageError, errors.UnknownOptionError])
def test_errors_cross_processes(kind: type[kolumn.KolumnError]) -> None:
    for lines in (("one",), ("one", "two"), ("one", "two", "three")):
        found = pickle.loads(pickle.dumps(kind(*lines)))
        assert (type(found), str(found)) == (kind, "\n".join(lines))


def test_schemas_have_a_public_name() -> None:
    program = "import kolumn; print(kolumn.schema.RECORD_COLUMNS['offset'])\nimport kolumn.core.schema as s; print(s.BATCH_SCHEMA.names[0])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["int64", "segment"]
    assert {"broker", "schema"} < {*dir(kolumn)}


LOG = CORPUS / "upgraded" / "upgraded-gzip-0"
RENAMED = {"Cleaning": "Retention", "clean": "apply_retention", "assign_offsets": "broker.assign_offsets", "mirror": "broker.mirror"}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_functions_by_their_old_names(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"kolumn\.{old} is called kolumn\.{new} now"):
        found = getattr(kolumn, old)
    assert found is attrgetter(new)(kolumn)
    assert old not in dir(kolumn)


def test_an_option_by_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="option 'keys' is called 'private_keys' now"):
        found = kolumn.read(LOG, keys={"key1": "no.pem"})  # type: ignore[call-arg]
    assert found.equals(kolumn.read(LOG, private_keys={"key1": "no.pem"}))
    with pytest.raises(kolumn.ArgumentError, match="keys"):
        kolumn.apply_retention(LOG, "out", retention_ms=1, keys={})  # type: ignore[call-arg]
    with pytest.raises(kolumn.ArgumentError, match="unknown option 'keys'"):
        kolumn.read(LOG, keys={}, private_keys={})  # type: ignore[call-arg]


def test_a_command_by_its_old_name(tmp_path: Path) -> None:
    done, expected = (run(name, "--retention-ms", "0", LOG, tmp_path / name) for name in ("clean", "apply-retention"))
    assert (done.returncode, expected.returncode) == (0, 0)
    assert done.stderr.splitlines()[1:] == expected.stderr.splitlines()
    assert "deprecated" in done.stderr.splitlines()[0]
    assert "\n  clean" not in run("--help").stdout


def test_sources_of_spark_by_their_old_names() -> None:
    with pytest.warns(DeprecationWarning, match="option keys is called privateKeys now"):
        assert LoadOptions.of({"path": "x", "keys": "k=/p"}).decode == LoadOptions.of({"path": "x", "privateKeys": "k=/p"}).decode
    with pytest.warns(DeprecationWarning, match=r'format\("kolumn-damage"\) is called format\("kolumn"\).option\("table", "damage"\) now'):
        source = spark_plugin.DamageSource({"path": str(LOG)})
    assert source.read_options == LoadOptions.of({"path": str(LOG), "table": "damage"})
    assert source.schema() == load(LOG, table="damage").schema
    raises(kolumn.ArgumentError, "unknown option 'table'", source.writer, source.schema(), False)


RIGHT = """
import kolumn
from datetime import datetime
from pathlib import Path
kolumn.read("x", value_format="json", value_schema={"a": "int64"}, key_errors="raise")
kolumn.read("x", threads=2, columns=["key"], start_timestamp=datetime(2026, 1, 31), errors="skip", on_damage=kolumn.Skipped())
kolumn.scan([Path("x"), "y"], start_timestamp="2026-01-31", end_timestamp=5, payload="string", columns="key")
kolumn.convert(Path("x"), Path("y"), format="kafka", magic=1, codec="gzip", errors="skip", on_progress=print)
done: kolumn.Compaction = kolumn.compact(iter(["x"]), "y", include_active=True)
"""
WRONG = {
    'kolumn.read("x", treads=2)': 'Unexpected keyword argument "treads"',
    'kolumn.read("x", threads="2")': '"threads".*has incompatible type "str"',
    'kolumn.read("x", value_format="jsn")': '"value_format".*has incompatible type',
    'kolumn.scan("x", errors="ignore")': '"errors".*has incompatible type',
    "kolumn.batches(5)": 'has incompatible type "int"',
    'kolumn.convert("x", "y", columns=["key"])': 'Unexpected keyword argument "columns"',
    'kolumn.verify("x").nothing': '"Report" has no attribute "nothing"',
}


@pytest.mark.slow
def test_mypy_knows_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT + "\n".join(WRONG) + "\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--follow-imports", "silent", str(program)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    first = RIGHT.count("\n") + 1
    errors = {int(line): text for line, text in re.findall(r"program\.py:(\d+): error: (.*)", found)}
    assert sorted(errors) == list(range(first, first + len(WRONG))), found
    for line, text in enumerate(WRONG.values(), first):
        assert re.search(text, errors[line]), found
