"""`kolumn report`: are its numbers those of `stats` and `verify`, does the page stand alone, and does a browser show it?"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.asked import invoked, put
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kolumn.core.times import rows_of as times_as_text
from kolumn.tools.report.gather import Findings, gather
from kolumn.tools.report.html import table
from kolumn.tools.report.page import in_formats, render
from kolumn.tools.report.tallies import MOST_BINS, Timeline

pytest.importorskip("matplotlib", reason="reports need matplotlib")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NASTY = b"</script><img src=http://report.test/x.png onerror=alert(1)>"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions with damage, transactions, compaction, an old format, and a key that is HTML."""
    root = tmp_path_factory.mktemp("broker")
    names = "transactional/txn-lz4-0 transactional/txn-open-0 compacted/compact-zstd-0 v1/v1-lz4-0 upgraded/upgraded-gzip-0"
    for name in names.split():
        shutil.copytree(CORPUS / name, root / name.split("/")[1])
    records = [[Record(10 * i + j, NASTY, b"v", 1_700_000_000_000 + 1000 * i - 5000 * (j == 3)) for j in range(10)] for i in range(40)]
    data = bytearray(b"".join(map(batch, records)))
    data[len(data) // 2 + 40] ^= 1
    put(root / "nasty-0", data)
    return root


@pytest.fixture(scope="module")
def page(broker: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out, page = report(broker, tmp_path_factory.mktemp("report"))
    assert out.exit_code == 1, out.stderr
    assert "1 damaged stretch left out" in out.stderr
    return page


@pytest.fixture(scope="module")
def gathered(broker: Path) -> Findings:
    return gather(broker)


def report(source: Path, folder: Path) -> tuple[Any, str]:
    out = invoked("report", source, "-o", folder / "report.html")
    return out, (folder / "report.html").read_text()


def test_a_page_replaces_only_pages(tmp_path: Path) -> None:
    log = put(tmp_path / "users-0", batch([Record(0, b"k", b"v", 1_700_000_000_000)]))
    before, notes = log.read_bytes(), tmp_path / "notes.html"
    notes.write_text("<title>Notes</title>")
    for target, message in (
        (log, "contains Kafka segments"), (log.parent / "new.html", "contains Kafka segments"), (notes, "is not a page of `kolumn report`"),
        (tmp_path, "is not a file"), ("s3://lake/r.html", "a file of this machine"),
    ):  # fmt: skip
        done = invoked("report", log, "-o", target)
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert (log.read_bytes(), notes.read_text()) == (before, "<title>Notes</title>")
    for _ in range(2):
        assert report(log, tmp_path)[0].exit_code == 0


class Parsed(HTMLParser):
    """Elements with their attributes, and tables of a page by their captions."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.starts: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.starts.append((tag, dict(attrs)))
        if tag == "table":
            self._rows = [[""]]
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            [caption], *rows = self._rows
            self.tables[caption], self._rows = [[cell.strip() for cell in row] for row in rows], []


def test_the_numbers_are_those_of_stats_and_verify(page: str, broker: Path) -> None:
    rows = [json.loads(line) for line in invoked("stats", "--json", broker).stdout.splitlines()]
    assert json.loads(page.partition('id="stats">')[2].partition("</script>")[0]) == rows
    head, *lines = Parsed(page).tables["The numbers of `kolumn stats`"]
    names = "topic partition records bytes batches firstOffset lastOffset damagedStretches recordsLost nullKeys"
    for name in names.split():
        shown = [line[head.index(name)].replace("\u202f", "") for line in lines]
        assert shown == ["–" if row[name] is None else str(row[name]) for row in rows], name
    damage = kolumn.verify(broker).damage.select(["position", "recordsLost", "reason"]).to_pylist()
    _, *lines = Parsed(page).tables["Damage"]
    assert [[line[1].replace("\u202f", ""), line[5], line[6]] for line in lines] == [list(map(str, row.values())) for row in damage]


def test_the_page_stands_alone(page: str) -> None:
    starts = Parsed(page).starts
    ids = Counter(attributes["id"] for _, attributes in starts if attributes.get("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    links = [value for _, found in starts for name, value in found.items() if name in ("href", "src", "xlink:href", "srcset")]
    assert links
    assert [link for link in links if link != "data:," and not (link and link.startswith("#") and link[1:] in ids)] == []
    assert [attributes for tag, attributes in starts if tag == "script"] == [{"type": "application/json", "id": "stats"}]
    assert "url(" not in page.replace("url(#", "")
    # The key is text in the page, and is nowhere an element.
    assert NASTY.decode() not in page
    assert escape(NASTY.decode()) in page or not gather(CORPUS / "v2-empty").keys.available
    charts = [attributes for tag, attributes in starts if tag == "svg"]
    assert len(charts) >= 8
    for chart in charts:
        assert chart["role"] == "img"
        assert set(str(chart["aria-labelledby"]).split()) <= set(ids)
    assert all("".join(words).strip() for words in re.findall(r"<title id=[^>]*>([^<]*)</title>|<desc id=[^>]*>([^<]*)</desc>", page))
    # Every colour is one of the page's, so that charts are readable in the dark.
    assert re.findall(r"#[0-9a-f]{6}", page.partition("<main>")[2]) == []


def test_what_became_of_the_offsets(gathered: Findings, broker: Path) -> None:
    for name, total in gathered.totals.items():
        own, (topic, partition) = gathered.offsets[name], name
        if own.first is None or own.last is None:
            continue
        rows = kolumn.read(broker / f"{topic}-{partition}", include_control=True, errors="skip", columns=["offset", "isControl"])
        assert gathered.controls[name] == rows["isControl"].to_pylist().count(True)
        assert total.records + gathered.controls[name] == rows.num_rows
        assert own.first <= min(rows["offset"].to_pylist())
        assert own.last >= max(rows["offset"].to_pylist())
    # What a batch claims and does not have was removed by the cleaner.
    source = CORPUS / "compacted" / "compact-zstd-0"
    claimed = sum(row["lastOffset"] - row["baseOffset"] + 1 - row["count"] for row in kolumn.batches(source).to_pylist())
    assert [offsets.inside for offsets in gather(source).offsets.values()] == [claimed]
    assert claimed > 0


def test_transactions(gathered: Findings, broker: Path) -> None:
    names = [f"{row['topic']}-{row['partition']}" for row in gathered.rows()]
    columns = ["producerId", "controlType", "isTransactional", "isControl", "offset", "transaction"]
    rows = [row for name in names for row in kolumn.read(broker / name, include_control=True, errors="skip", columns=columns).to_pylist()]
    ends, counts = Counter(row["controlType"] for row in rows), gathered.transactions.counts
    assert counts["committed"] + counts["aborted"] + counts.get("empty", 0) == ends["COMMIT"] + ends["ABORT"]
    assert ends["ABORT"] >= counts["aborted"] > 0
    assert counts["open"] > 0
    states = Counter(row["transaction"] for row in rows if not row["isControl"])
    for state in ("committed", "aborted", "open"):
        assert gathered.states[state] == states[state]
    skipped = kolumn.Skipped()
    kolumn.read([broker / name for name in names], isolation_level="read_committed", errors="skip", on_damage=skipped)
    assert gathered.stopped == skipped.stopped != []


def test_space_by_format_and_ratios_of_codecs(gathered: Findings, broker: Path) -> None:
    heads = [row for row in kolumn.batches(broker, errors="skip").to_pylist() if row["crcValid"] is not False]
    assert gathered.headers.formats == {
        magic: [len(sizes), sum(sizes)] for magic in range(3) for sizes in [[row["size"] for row in heads if row["magic"] == magic]]
    }
    sizes: Counter[str] = Counter()
    for row in kolumn.read(broker, errors="skip", columns=["codec", "key", "value"]).to_pylist():
        sizes[row["codec"]] += len(row["key"] or b"") + len(row["value"] or b"")
    assert +gathered.payloads == +sizes
    # The smaller the format, the less it adds; all have the sample's keys and values.
    by_magic = {format.magic: format for format in in_formats(gathered.sample)}
    assert list(by_magic) == [0, 1, 2]
    assert len({format.parts["values"] for format in by_magic.values()}) == 1


def test_lag_of_groups(tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "internal" / "__consumer_offsets-0", tmp_path / "__consumer_offsets-0")
    committed = [row for row in times_as_text(kolumn.groups(tmp_path)) if row["committedOffset"] is not None]
    lag = gather(tmp_path).lag
    assert lag is not None
    assert sorted(map(str, lag.rows)) == sorted(map(str, committed)) != []
    out, page = report(tmp_path, tmp_path)
    assert out.exit_code == 0, out.stderr
    assert len(Parsed(page).tables["Committed offsets"]) == 1 + len(committed)
    assert gather(CORPUS / "v2-empty").lag is None


def test_topics_have_their_own_times(tmp_path: Path) -> None:
    """Far apart in time, they are drawn apart; and partitions of a topic have a skew."""
    hour = 3_600_000
    for name, start in (("old-0", 0), ("new-0", 400 * 24 * hour), ("new-1", 400 * 24 * hour + 5000)):
        times = pa.array(range(1_700_000_000_000 + start, 1_700_000_000_000 + start + hour, 10_000), pa.int64())
        kolumn.write(pa.table({"timestampMs": times, "value": [b"v"] * len(times)}), tmp_path / name)
    found = gather(tmp_path)
    assert {name: int(timeline.sums[0].sum()) for name, timeline in found.timelines.items()} == {"old": 360, "new": 720}
    assert Timeline.together(found.timelines.values()).sums.sum(axis=1).tolist() == [1080, 1080]
    page = render(found, "x")
    assert "Records of old" in page
    assert "<figcaption>Records</figcaption>" not in page
    skew = Parsed(page).tables["Skew: the newest record of each partition, by topic"][1]
    assert (skew[0], "5 s" in skew[-1]) == ("new", True)


def test_late_records_and_times_in_bounded_memory(broker: Path) -> None:
    found = gather(broker / "nasty-0")
    times = kolumn.read(broker / "nasty-0", errors="skip", columns=["timestampMs"])["timestampMs"].to_numpy()
    latest = np.maximum.accumulate(times)
    assert found.late["nasty", 0] == (int((times < latest).sum()), int((latest - times).max()))
    assert int(found.lateness.counts.sum()) == len(times)
    assert int(found.lateness.counts[1:].sum()) == int((times < latest).sum()) > 0
    timeline = Timeline()
    rng = np.random.default_rng(5)
    for _ in range(4):
        times = rng.integers(0, 2**44, 50_000)
        timeline.add(times, np.full(len(times), 3))
    assert len(timeline.numbers) <= MOST_BINS
    assert timeline.sums.sum(axis=1).tolist() == [200_000, 600_000]
    drawn = timeline.drawn(90)
    assert len(drawn.records) <= 90
    assert int(drawn.records.sum()) + drawn.outside == 200_000


def test_keys_by_sketches(tmp_path: Path) -> None:
    pytest.importorskip("datasketches", reason="kolumn[report] has it")
    keys = [b"hot"] * 5000 + [b"%d" % (i % 20_000) for i in range(60_000)] + [None] * 7 + [b"\xff\x00"] * 900
    kolumn.write(pa.table({"key": pa.array(keys, pa.binary())}), tmp_path / "keys-0")
    found = gather(tmp_path / "keys-0").keys
    estimate, low, high = found.distinct()
    assert low <= 20_002 <= high
    assert abs(estimate / 20_002 - 1) < 0.03
    hot, other = found.frequent()[:2]
    assert (hot.key, other.key) == (b"hot", b"\xff\x00")
    assert hot.least <= 5000 <= hot.most
    assert other.least <= 900 <= other.most


def test_sources_without_records_and_long_tables(tmp_path: Path) -> None:
    out, page = report(CORPUS / "v2-empty", tmp_path)
    assert out.exit_code == 0, out.stderr
    assert "No damage." in page
    assert "There is no batch in it." in page
    made = table("Damage", ["n"], [[i] for i in range(1205)], 200)
    assert "Damage: the first 200 of 1\u202f205" in made
    assert made.count("<tr>") == 201


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """Eight times as many bytes, and no more memory; `bench/report_memory.py` measures larger ones."""
    rows = range(4000)
    kolumn.write(pa.table({"key": [b"%d" % i for i in rows], "value": [bytes([i % 251]) * 4000 for i in rows]}), tmp_path / "one-0")
    (segment,) = (tmp_path / "one-0").glob("*.log")
    program = (
        "import sys; from kolumn.tools.report.gather import gather, total; found = gather(sys.argv[1]);"
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM:'));"
        "print(peak, total(found, lambda one: one.bytes))"
    )
    peaks = []
    for partitions in (2, 16):
        folder = tmp_path / f"of-{partitions}"
        for partition in range(partitions):
            (folder / f"t-{partition}").mkdir(parents=True)
            os.link(segment, folder / f"t-{partition}" / segment.name)
        peak, size = map(int, subprocess.run([sys.executable, "-c", program, folder], capture_output=True, check=True).stdout.split())
        assert size == partitions * segment.stat().st_size
        peaks.append(peak)
    # KiB: the sample takes up to 16 MiB, and is full after four partitions.
    assert peaks[1] < peaks[0] + 80_000


MEASURE = """<!DOCTYPE html><link rel="icon" href="data:,"><body><iframe id="wide" src="/" style="width:1280px;height:900px"></iframe>
<iframe id="phone" src="/" style="width:390px;height:800px"></iframe><pre id="out"></pre><script>
addEventListener("load", () => { const out = {};
for (const name of ["wide", "phone"]) { const page = document.getElementById(name).contentDocument, root = page.documentElement;
  const charts = [...page.querySelectorAll("figure svg")].map(one => one.getBoundingClientRect());
  const style = getComputedStyle(page.body), text = [...page.querySelectorAll("figure svg text")]
    .map(one => one.getBoundingClientRect().height);
  out[name] = {scroll: root.scrollWidth, client: root.clientWidth, charts: charts.map(one => [one.left, one.right, one.height]),
    ink: style.color, paper: style.backgroundColor, least: Math.min(...text), headings: page.querySelectorAll("h2").length,
    label: getComputedStyle(page.querySelector("figure svg text")).fill}; }
document.getElementById("out").textContent = JSON.stringify(out); });</script></body>"""


@pytest.fixture(scope="module")
def server(page: str) -> Iterator[tuple[int, list[str]]]:
    """A proxy that answers every request, and notes it."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = {"http://report.test/": page, "http://report.test/measure": MEASURE}.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_CONNECT(self) -> None:
            self.send_error(403)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_address[1], asked
        found.shutdown()


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        r, g, b = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.skipif(CHROMIUM is None and os.environ.get("KOLUMN_BROWSER") != "required", reason="there is no chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it(server: tuple[int, list[str]], scheme: str, tmp_path: Path) -> None:
    port, asked = server
    asked.clear()
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--no-first-run", f"--user-data-dir={tmp_path}",
        f"--proxy-server=http://127.0.0.1:{port}", "--enable-logging=stderr",
        *(["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []), "--window-size=1800,1000", "--virtual-time-budget=3000",
        "--dump-dom", "http://report.test/measure",
    ]  # fmt: skip
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ":CONSOLE" not in out.stderr, out.stderr
    # Chromium has requests of its own.
    assert {path for path in asked if "report.test" in path} == {"http://report.test/measure", "http://report.test/"}
    found = json.loads(re.search(r'<pre id="out">(.*?)</pre>', out.stdout, re.DOTALL)[1])  # type: ignore[index]
    for name in ("wide", "phone"):
        one = found[name]
        assert one["scroll"] <= one["client"], name
        assert len(one["charts"]) >= 8
        assert all(left >= 0 and right <= one["client"] and height > 40 for left, right, height in one["charts"])
        assert one["least"] >= 8
        assert contrast(one["ink"], one["paper"]) > 7
        assert one["label"] == one["ink"]
        assert one["headings"] >= 8
    dark = contrast(found["wide"]["paper"], "rgb(255,255,255)") > 10
    assert dark == (scheme == "dark")
