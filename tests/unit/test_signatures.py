"""Public functions name all their parameters, with types and defaults, which are the same for the same option in all functions."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

import kolumn
from kolumn import keywords, spark_plugin
from kolumn.encode.write import settings
from kolumn.errors import ArgumentError
from kolumn.formats import layouts
from kolumn.log.pieces import whole_options
from kolumn.options import Options
from kolumn.spark_plugin import rapids
from kolumn.spark_plugin.options.write import WriteOptions

ROOT = Path(__file__).resolve().parents[2]
EMPTY = inspect.Parameter.empty
Parameters = dict[str, inspect.Parameter]


def functions_of(module: Any) -> list[Callable[..., Any]]:
    found = (getattr(module, name) for name in module.__all__ if name[0].islower())
    return [function for function in found if inspect.isfunction(function)]


def parameters(function: Callable[..., Any]) -> Parameters:
    return dict(inspect.signature(function).parameters)


PUBLIC = [function for module in (kolumn, spark_plugin, rapids) for function in functions_of(module)]
OPTIONS = parameters(Options.of)
WHOLE = {name: one for name, one in parameters(whole_options).items() if name != "format"}
WRITE = parameters(kolumn.write)
# Filled in by `Options.of`: the default depends on the machine, the backend or other options.
OPEN = {"columns", "chunk_bytes", "threads"}
PAYLOADS = list(keywords.PAYLOAD_DEFAULTS)
"""Options for values and keys, which functions take together."""
READERS = [kolumn.read, kolumn.scan, kolumn.batches, kolumn.verify]
GPU_READERS = [kolumn.read_pylibcudf, kolumn.read_cudf, kolumn.scan_pylibcudf, kolumn.scan_cudf]
READERS += GPU_READERS
SPARK_READERS = [spark_plugin.read_segments, spark_plugin.export]
REWRITERS = [kolumn.convert, kolumn.compact, kolumn.clean, kolumn.space, spark_plugin.convert, spark_plugin.compact]
TAKEN: dict[Callable[..., Any], frozenset[str]] = {
    **dict.fromkeys(READERS, frozenset(OPTIONS)),
    spark_plugin.read_segments: frozenset(OPTIONS) - {"binary"},
    spark_plugin.export: frozenset(OPTIONS) - {"binary", "format"},
    **dict.fromkeys(REWRITERS, frozenset(WHOLE)),
}
# Parameters that these functions take only because others do; they have no effect there.
NO_EFFECT = {**{one.__name__: {"backend"} for one in GPU_READERS}, "read_segments": {"threads"}, "export": {"threads"}}


def label(function: Any) -> str | None:
    return None if isinstance(function, str | set) else f"{function.__module__.removeprefix('kolumn.')}.{function.__name__}"


def test_options_of_takes_the_fields_of_options() -> None:
    *plain, typed, snapshots, deleted, remarks = fields(Options)
    assert (typed.name, snapshots.name, deleted.name, remarks.name) == ("typed", "include_snapshots", "include_deleted_records", "remarks")
    assert list(OPTIONS) == [*(field.name for field in plain), *PAYLOADS]
    assert {name: one.default for name, one in OPTIONS.items() if name not in {*OPEN, *PAYLOADS}} == {
        field.name: field.default for field in plain if field.name not in OPEN
    }
    assert {OPTIONS[name].default for name in OPEN} == {None}


def test_what_is_open_is_filled_in() -> None:
    given = {name: None for name, one in OPTIONS.items() if one.default is None}
    assert Options.of(**given) == Options.of()  # type: ignore[arg-type]
    made = Options.of(threads=1)
    assert (made.threads, made.columns[0]) == (1, "key")


@pytest.mark.parametrize("function", TAKEN, ids=label)
def test_options_are_the_same_everywhere(function: Callable[..., Any]) -> None:
    """Names, defaults and types are the same. This fails for an option that is added in one place only."""
    own, known = parameters(function), {name: OPTIONS[name] for name in TAKEN[function]}
    assert {name: own[name].default for name in known} == {name: one.default for name, one in known.items()}
    assert {name: own[name].annotation for name in known} == {name: one.annotation for name, one in known.items()}
    assert {own[name].kind for name in known} == {inspect.Parameter.KEYWORD_ONLY}


def test_rewriting_takes_no_option_that_leaves_something_out() -> None:
    assert {name: one for name, one in OPTIONS.items() if name in WHOLE} == WHOLE
    assert set(OPTIONS) - set(WHOLE) - {"format"} == {
        *("columns", "include_headers", "start_offset", "end_offset", "start_timestamp", "end_timestamp", "isolation_level"),
        *("include_control", "backend", "binary", "threads", "trusted", "keys"),
        *PAYLOADS,
    }


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (kolumn.convert, kolumn.write, {"codec"}),
        (kolumn.compact, kolumn.write, set()),
        (kolumn.clean, kolumn.write, {"format"}),
        (spark_plugin.convert, kolumn.convert, {"target"}),
        (spark_plugin.compact, kolumn.compact, {"target"}),
        (kolumn.read_cudf, kolumn.read_pylibcudf, set()),
        (kolumn.scan_cudf, kolumn.scan_pylibcudf, set()),
        (kolumn.read_cudf, kolumn.scan_cudf, set()),
        (kolumn.read, kolumn.scan, set()),
    ],
)
def test_options_of_one_name_are_one_option(one: Callable[..., Any], other: Callable[..., Any], differ: set[str]) -> None:
    left, right = parameters(one), parameters(other)
    names = (left.keys() & right.keys()) - differ
    assert names
    assert {name: left[name] for name in names} == {name: right[name] for name in names}
    if one.__name__ == other.__name__ or one in READERS:
        assert set(left) - {"spark"} == set(right)


def test_defaults_of_a_write_in_spark() -> None:
    plain = WriteOptions.of({"path": "/nowhere"})
    defaults = {name: one.default for name, one in WRITE.items()}
    assert plain.how == settings(**{name: defaults[name] for name in inspect.signature(settings).parameters})
    assert (plain.segment_bytes, plain.index_interval_bytes) == (defaults["segment_bytes"], defaults["index_interval_bytes"])


def test_options_of_values_and_of_keys_are_the_same() -> None:
    kinds = keywords.PayloadOptions.__annotations__
    of_both = {"decode", "include_snapshots", "include_deleted_records"}
    assert of_both < set(PAYLOADS)
    for name in set(PAYLOADS) - of_both:
        column, _, own = name.partition("_")
        other = f"{'key' if column == 'value' else 'value'}_{own}"
        assert (kinds[name], keywords.PAYLOAD_DEFAULTS[name]) == (kinds[other], keywords.PAYLOAD_DEFAULTS[other])


def test_choices() -> None:
    assert get_args(keywords.Format) == layouts.FORMAT_NAMES
    assert set(get_args(keywords.Codec)) == set(kolumn.codecs.known.NAMES)


@pytest.mark.parametrize("function", PUBLIC, ids=label)
def test_every_parameter_is_there(function: Callable[..., Any]) -> None:
    kinds = {one.kind for one in parameters(function).values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert not [name for name, one in parameters(function).items() if one.annotation is EMPTY]


@pytest.mark.parametrize("function", PUBLIC, ids=label)
def test_every_parameter_is_used(function: Callable[..., Any]) -> None:
    """A parameter that is not passed on would be accepted without an effect."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    assert isinstance(tree, ast.FunctionDef)
    loaded = {node.id for statement in tree.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    loaded |= {*PAYLOADS} if "payloads" in loaded else set()
    assert set(parameters(function)) - loaded == NO_EFFECT.get(function.__name__, set())
    # No option is passed on under the name of another one.
    renamed = {
        (one.arg, one.value.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for one in node.keywords
        if isinstance(one.value, ast.Name) and one.arg in OPTIONS and one.value.id in OPTIONS and one.arg != one.value.id
    }
    assert renamed == set()


def test_scan_documents_its_parameters() -> None:
    text = inspect.getdoc(kolumn.scan) or ""
    section = text[text.index("Parameters\n---") : text.index("Returns\n---")]
    documented = [name for line in re.findall(r"^(\w[\w, ]*) : ", section, re.MULTILINE) for name in line.split(", ")]
    assert documented == list(parameters(kolumn.scan))


def test_signatures_are_shown() -> None:
    shown = str(inspect.signature(kolumn.read))
    for name in ("columns", "start_offset", "threads", "on_damage"):
        assert f"{name}: " in shown
    assert inspect.signature(kolumn.read).parameters["max_ratio"].default == 1032.0
    assert kolumn.read.__name__ == "read"
    assert kolumn.read.__doc__


@pytest.mark.parametrize("function", [function for function in PUBLIC if parameters(function)], ids=label)
def test_a_keyword_that_does_not_exist(function: Callable[..., Any]) -> None:
    if function in (rapids.explain, spark_plugin.register, spark_plugin.configure):
        return
    needed = [None for one in parameters(function).values() if one.default is EMPTY and one.kind is not inspect.Parameter.KEYWORD_ONLY]
    with pytest.raises(ArgumentError, match="unknown option 'colour'"):
        function(*needed, colour="red")


@pytest.mark.parametrize(
    ("function", "name", "near"),
    [(kolumn.read, "treads", "threads"), (kolumn.write, "codek", "codec"), (kolumn.clean, "retention", "retention_ms")],
    ids=label,
)
def test_the_nearest_one_is_named(function: Callable[..., Any], name: str, near: str) -> None:
    with pytest.raises(ArgumentError, match=f"unknown option '{name}', did you mean '{near}'"):
        function("a", "b", **{name: 1})


@pytest.mark.parametrize("function", SPARK_READERS, ids=label)
def test_spark_has_one_binary_type(function: Callable[..., Any]) -> None:
    with pytest.raises(ArgumentError, match="option 'binary' is about Arrow tables in Python"):
        function(None, "a", binary="view")


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
