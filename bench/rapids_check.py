"""Does Spark decode on a GPU what the CPU decodes, and how fast?  python -m bench.rapids_check [GIB] [--explain-only]

On a machine with a GPU, Java and the jar of the RAPIDS Accelerator (`kolumn.spark_plugin.rapids.fetch_jar`), in one local session:

rows    every segment of the corpus, all columns: those of `kolumn.read`; a damaged one: its error, and what is left with errors=skip
plans   queries whose scans have to run on the GPU as a whole
speed   a topic of GIB (1) in each codec: sums over key, value and offset, decoded by the GPU, by nvCOMP too (trusted), by the CPU under
        the accelerator (backend=cpu), and the accelerator's own scan of the same rows as Parquet. Ratios are Parquet's best time by
        the route's

What differs is printed as it comes, and kept in ``bench/results/rapids-CARD.json``. --explain-only tries the script without a GPU: the
CPU runs everything, nothing is kept, and nothing of it says anything about a GPU.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import kolumn
from bench import data, machine
from bench.spark_vs_parquet import log
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.spark_plugin import rapids
from kolumn.spark_plugin.read.schema import arrow_schema, conformed
from kolumn.spark_plugin.session.java import use_java

CORPUS = machine.ROOT / "tests" / "data" / "corpus"
TURNS = 3
QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "all columns": lambda log: log,
    "grouped by key": lambda log: log.groupBy(sql.col("key").cast("string")).agg(sql.sum(sql.octet_length("value"))),
    "joined": lambda log: log.join(log.select("partition", sql.col("offset").alias("other")), "partition"),
    "headers exploded": lambda log: log.select(sql.explode("headers")),
    "filtered": lambda log: log.where("offset > 100 and timestamp > timestamp'2020-01-01'"),
}


def card() -> str:
    """Name of the first GPU, as a part of a file's name."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return found.removeprefix("NVIDIA ").replace(" ", "-").lower()


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("kolumn").options(**options).load(str(path))


def rows(spark: SparkSession, scratch: Path) -> Iterator[tuple[str, str]]:
    """Each folder of the corpus, and a damaged segment: in what it differs, nothing if in nothing."""
    every = ",".join(RECORD_COLUMNS)
    for folder in sorted({path.parent for path in CORPUS.rglob("*.log")}):
        frame = load(spark, folder, columns=every, includeControl="true").orderBy("segment", "offset")
        expected = kolumn.read(folder, columns=list(RECORD_COLUMNS), include_control=True).sort_by(
            [("segment", "ascending"), ("offset", "ascending")]
        )
        schema = arrow_schema(frame.schema)
        found = frame.toArrow().select(schema.names).cast(schema)
        whole = pa.Table.from_batches(conformed(expected.to_batches(), schema), schema)
        yield str(folder.relative_to(CORPUS)), ", ".join(name for name in schema.names if not same(found[name], whole[name]))
    source = next(path for path in sorted(CORPUS.rglob("*.log")) if path.stat().st_size > 50_000)
    damaged = scratch / "damaged-0" / source.name
    damaged.parent.mkdir(parents=True, exist_ok=True)
    content = bytearray(source.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    left = load(spark, damaged, errors="skip").count()
    yield "damaged, errors=skip", "" if left == kolumn.read(damaged, errors="skip").num_rows else f"{left} records"
    told, expected_error = failure(lambda: load(spark, damaged).agg(sql.sum("offset")).collect()), failure(lambda: kolumn.read(damaged))
    yield "damaged", "" if expected_error in told else told[:500]


def failure(call: Callable[[], object]) -> str:
    """The text of a call's error."""
    try:
        call()
    except Exception as error:
        return str(error)
    return "no error"


def same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """By rows: lists whose chunks differ are not always called equal."""
    return one.combine_chunks().equals(other.combine_chunks())


def plans(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """What of each query is not on the GPU."""
    frame = load(spark, CORPUS / "v2-java" / "java-zstd-0", columns="key,value,partition,offset,timestamp,headers")
    for name, query in QUERIES.items():
        yield name, ", ".join(rapids.explain(query(frame)).on_cpu)


def sums(frame: DataFrame) -> tuple[Any, ...]:
    """An aggregate that needs all of keys and values."""
    totals = (sql.sum(sql.octet_length("key")), sql.sum(sql.octet_length("value")), sql.sum("offset"), sql.count("*"))
    return tuple(frame.agg(*totals).first() or ())


def speed(spark: SparkSession, size: int, scratch: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Seconds of each route, after their answers were compared."""
    for codec in data.CODECS:
        folder, parquet = Path(log(max(1, size // data.SEGMENT_BYTES), codec)), str(scratch / f"{codec}.parquet")
        # As strings: of binary columns the accelerator has no lengths on the GPU.
        writer = load(spark, folder, payload="string").write.mode("overwrite")
        writer.option("compression", "zstd" if codec == "zstd" else "none").parquet(parquet)
        ways: dict[str, Callable[[], tuple[Any, ...]]] = {
            "Parquet": lambda parquet=parquet: sums(spark.read.parquet(parquet)),  # type: ignore[misc]
            "GPU": lambda folder=folder: sums(load(spark, folder, payload="string")),  # type: ignore[misc]
            "GPU, trusted": lambda folder=folder: sums(load(spark, folder, payload="string", trusted="true")),  # type: ignore[misc]
            "CPU": lambda folder=folder: sums(load(spark, folder, payload="string", backend="cpu")),  # type: ignore[misc]
        }
        answers = {name: way() for name, way in ways.items()}
        assert len({*answers.values()}) == 1, answers
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(TURNS):
            for name, way in ways.items():
                start = perf_counter()
                way()
                best[name] = min(best[name], perf_counter() - start)
        stored = sum(path.stat().st_size for path in folder.glob("*.log"))
        yield codec, {"bytes": stored, "seconds": best, "ratios": {name: best["Parquet"] / each for name, each in best.items()}}


def main(*arguments: str) -> int:
    """Check, measure, print and keep; the number of differences is the exit code."""
    explain_only = "--explain-only" in arguments
    given = [one for one in arguments if not one.startswith("--")]
    size = int(float(given[0]) * (1 << 30)) if given else 1 << 30
    use_java()
    builder = SparkSession.builder.master("local[*]").config(
        map={"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    )
    spark = rapids.configure(builder, explain_only=explain_only).getOrCreate()
    scratch = machine.ROOT / "build" / "bench" / "rapids"
    result: dict[str, Any] = {"different": {}, "speed": {}}
    for step in (rows(spark, scratch), plans(spark)):
        for name, different in step:
            print(f"{name:50} {different or 'fine'}", flush=True)
            if different:
                result["different"][name] = different
    for codec, found in speed(spark, size, scratch):
        print(f"{codec:50} { ({name: round(ratio, 2) for name, ratio in found['ratios'].items()}) }", flush=True)
        result["speed"][codec] = found
        if not explain_only:
            machine.save(f"rapids-{card()}", result)
    spark.stop()
    return len(result["different"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
