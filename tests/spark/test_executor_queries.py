"""Whole queries that decode in the executor: plan, splits, worker, kernels and columns, in Spark's tasks, and no GPU.

The session has stand-ins for RAPIDS' classes, and its driver is the tests' own, which runs kernels as loops. What the accelerator does
with the connector's function `tests/kit/java/OnDevice.java` does.
"""

import re
from typing import Any

import pytest

from kit.spark_session import run_job

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NOTHING = [0, 0, 0, 0, 0]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_job("ask", tmp_path_factory.mktemp("queries"), script="executor_queries_job.py")


def test_reads_have_the_rows_of_the_cpu(found: Any) -> None:
    rows = {"no_splits": 0, "no_rows": 0, "a_limit": 7, "parts_of_values": 300, "of_two": 1200, "a_count": 1}
    for name, one in (found["reads"] | found["parts"]).items():
        assert (one["wrong"], one["left"]) == ("", NOTHING), name
        # Those of the CPU alone call nothing on the device.
        assert (one["calls"] > 0, one["more"]) == (name != "no_splits", 0), name
        assert one["rows"] == rows[name] if name in rows else one["rows"] >= 200, name
    assert (len(found["reads"]), len(found["parts"])) == (11, 8)
    assert found["reads"]["transactional txn-zstd-0"]["calls"] > 1
    here, on_cpu, calls, left = found["taken"]
    assert (here == on_cpu, len(here), left) == (True, 90, NOTHING)
    # The first job has one split, the next ones have more.
    assert 1 < calls < 30
    assert found["joined"] == [[False, True, 396, sum(range(4, 400))], [True, False, 396, sum(range(4, 400))]]
    assert found["inflated"] > 3
    # Messages are decoded by kernels, and not by the CPU.
    assert found["messages written"] > 0


def test_random_queries_have_the_rows_of_the_cpu(found: Any) -> None:
    for one in found["queries"]:
        assert (one["wrong"], one["left"]) == ([], NOTHING), one["query"]
    assert sum(one["calls"] for one in found["queries"]) > 10
    # Two tasks at a time, each of which has the GPU in the end.
    released, acquired = found["turns"]
    assert (found["most"], released > 30, acquired) == (2, True, released)


def test_what_a_plan_says(found: Any) -> None:
    said, reused, final = found["explained"]
    for plan in found["explained"]:
        assert re.search(r"Generate explode\(kolumn_decode \{path=\S+orders.*\}, columns: .*\bRange \(0, ", plan, re.DOTALL), plan
        assert "BatchScan" not in plan
    assert "where: offset IS NOT NULL AND offset > 5" in said
    assert ("ReusedExchange" in reused, "isFinalPlan=true" in final) == (True, True)


def test_what_was_left_out_is_counted_once(found: Any) -> None:
    counted, lost = found["counted"], 500 - found["reads"]["damaged"]["rows"]
    assert (counted["damaged stretches left out"], counted["records in damaged stretches, as far as they are known"]) == (1, lost)
    assert counted["bytes of the log"] > 10_000


def test_errors(found: Any) -> None:
    """Of the log as without a GPU; of the GPU by their names, and the next query is fine."""
    here, on_cpu = (re.search(r"CorruptBatchError: .*bad-0.*", text) for text in found["errors"])
    assert here
    assert on_cpu
    assert here[0] == on_cpu[0]
    text, left, size = found["failed"]
    assert "CUDA_ERROR_LAUNCH_FAILED (719)" in text
    assert (left, size > 10_000) == (NOTHING, True)


def test_a_cancelled_job_leaves_nothing(found: Any) -> None:
    for one in found["cancelled"]:
        (told,) = one["told"]
        assert "SPARK_JOB_CANCELLED" in told
        assert (one["waits"], one["left"], one["records"]) == (True, NOTHING, 0)
        assert 0 < one["calls"] <= 2
    after = found["after"]
    assert (after["wrong"], after["left"], after["rows"]) == ("", NOTHING, 300)
    assert found["locked"] == 0
