"""A split on an executor's GPU, through the JVM: the rows, errors and counts of a worker that decodes on the CPU.

The JVM has stand-ins for RAPIDS' classes, and its driver is the tests' own, which runs kernels as loops. The worker is the connector's.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.corpus import cases
from kit.decode_calls import Calls, running, table_of
from kit.executor import EVERY, asked, mutants, on_cpu
from kit.fuzz import MUTANTS
from kit.own_libcuda import OwnLibcuda
from kolumn.spark_plugin.connector.work import Work, packed
from kolumn.spark_plugin.read.schema import arrow_schema
from kolumn.spark_plugin.read.splits import Split

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    with OwnLibcuda(tmp_path_factory.mktemp("libraries")) as gpu, running(tmp_path_factory.mktemp("rows"), sys.executable, gpu) as found:
        yield found


def same(jvm: Calls, split: Split, work: Work) -> Any:
    """Compare both; returns what the CPU says."""
    expected = on_cpu(split, work)
    found = jvm.ask({"python": sys.executable, "shared": True, "splits": [packed(split)], "work": packed(work)})
    assert (found["live"], jvm.gpu.live) == ([0, 0, 0], {}), "something was not closed"
    if isinstance(expected, str):
        assert expected in found.get("error", "no error")
        return expected
    assert "error" not in found, found["error"]
    table, counted = expected
    for name, column in zip(table.column_names, table_of(found, arrow_schema(work.schema)).columns, strict=True):
        assert column.combine_chunks().equals(table[name].combine_chunks()), name
    (metrics,) = found["metrics"]
    assert {**metrics, "decodeMs": 0} == {**counted, "decodeMs": 0}
    return expected


def test_corpus(jvm: Calls) -> None:
    rows = 0
    for case in cases():
        for options in ({"columns": EVERY, "includeControl": "true", "trusted": "true"}, {"errors": "skip"}) if case.segments else ():
            splits, work = asked(case.directory, **options)
            for split in splits:
                found = same(jvm, split, work)
                rows += 0 if isinstance(found, str) else found[0].num_rows
    assert rows > 1000
    assert {"launched check", "launched fields"} <= {*jvm.gpu.asked}


def test_mutants(jvm: Calls, tmp_path: Path) -> None:
    """Of the shipped formats and the drafts."""
    found = [isinstance(same(jvm, *one), str) for one in mutants(tmp_path, max(60, MUTANTS // 100))]
    assert sum(found) > len(found) // 10 > 5
