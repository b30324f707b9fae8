"""What do notebooks show of a report and of damage?"""

import re
from pathlib import Path

import pytest

import kolumn
from kit.encoder import Record, batch


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty damaged batches, in a topic whose name is HTML."""
    folder = tmp_path_factory.mktemp("notebook") / "<b>&topic-0"
    folder.mkdir()
    entries = [bytearray(batch([Record(i, b"key", b"value", 1000)])) for i in range(121)]
    for entry in entries[1::2]:
        entry[-3] ^= 1
    (folder / f"{0:020}.log").write_bytes(b"".join(entries))
    return folder


def cells(html: str) -> list[list[str]]:
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html) if "<td" in row]


def test_a_report(damaged: Path) -> None:
    report = kolumn.verify(damaged)
    html = report._repr_html_()
    assert "<b>60 damaged stretches</b>: 1 segments, 61 intact batches, 61 records, " in html
    assert [row[1] for row in cells(html)] == [str(one) for one in report.damage["position"].to_pylist()[:50]]
    assert "<p>and 10 more</p>" in html
    assert "<b>&topic" not in html
    assert "&lt;b&gt;&amp;topic-0" in html


def test_what_was_left_out(damaged: Path) -> None:
    skipped = kolumn.Skipped()
    assert skipped._repr_html_() == "<p>nothing left out</p>"
    kolumn.read(damaged, errors="skip", on_damage=skipped)
    html = skipped._repr_html_()
    assert html.startswith("<p>60 damaged stretches left out: ")
    assert len(cells(html)) == 50
    assert "<p>and 10 more</p>" in html
    (row,) = cells(skipped.damage[0]._repr_html_())
    assert row[1:6] == [str(skipped.damage[0].position), str(skipped.damage[0].size), "1", "1", "1"]


def test_no_damage(damaged: Path, tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / f"{0:020}.log").write_bytes(batch([Record(0)]))
    html = kolumn.verify(tmp_path / "a-0")._repr_html_()
    assert html.startswith("<p><b>OK</b>: ")
    assert "<table>" not in html
