"""`kolumn erase` on the command line: what it takes, what it says, how it ends."""

import json
from pathlib import Path

import pytest

import kolumn
from kit.asked import invoked, offsets
from kit.encoder import Record, batch
from kit.replicas import flip, write_log

RECORDS = [
    Record(i, b"person-%d" % (i % 4), b'{"id": %d}' % (i % 3), 1_700_000_000_000 + i, ((b"tenant", b"t%d" % (i % 2)),)) for i in range(12)
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "a", (0, [batch(RECORDS[:6]), batch(RECORDS[6:])]))


def test_keys_in_a_file(log: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"person-1\r\n\nhex:706572736f6e2d32\nbase64:cGVyc29uLTM=\n")
    done = invoked("erase", "--keys", keys, "--verify", log, tmp_path / "b")
    kept = "nothing else of them is left, but 3 records that stay have the same key or value (alsoKept)"
    assert (done.exit_code, done.stderr) == (0, f"9 records erased in 1 partition; verified: {kept}\n")
    assert offsets(tmp_path / "b") == [0, 4, 8]
    assert "person" not in done.stdout.replace(str(log), "")
    assert [title for title in ("Written", "Erased", "Verification", "What to do next") if title not in done.stdout] == []
    said = json.loads(invoked("erase", "--keys", keys, "--json", log, tmp_path / "c").stdout)
    assert (said["ok"], said["partitions"][0]["records"], said["unlisted"], len(said["erased"])) == (True, 9, 0, 3)


def test_keys_that_match_nothing_are_named(log: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"person-1 \nhex:706572736f6e2d32\nhex:ff\nhex:6865783a31\n")
    done = invoked("erase", "--keys", keys, "--verify", log, tmp_path / "b")
    erased, unmatched = done.stderr.splitlines()
    assert (done.exit_code, erased.partition(";")[0]) == (0, "3 records erased in 1 partition")
    assert unmatched == "3 keys matched no record: 'hex:6865783a31', 'person-1 ', 'hex:ff'"
    keys.write_text("".join(f"k{number}\n" for number in range(7)))
    done = invoked("erase", "--keys", keys, "--verify", "--json", log, tmp_path / "c")
    assert done.stderr.splitlines() == [
        "0 records erased in 1 partition; verified: every record is as it was",
        "7 keys matched no record: 'k0', 'k1', 'k2', 'k3', 'k4' and 2 more",
    ]
    assert json.loads(done.stdout)["unmatched"] == [f"k{number}" for number in range(7)]
    one = kolumn.erase(log, tmp_path / "d", keys=["person-1", "person-9"], where="tenant=t1", verify=True)
    assert (one.unmatched, str(one)) == ([b"person-9"], "3 records erased in 1 partition; 1 key matched no record")
    done = invoked("erase", "--where", "tenant=t1", "--verify", log, tmp_path / "e")
    assert "nothing else of them is left, but 6 records that stay have the same" in done.stderr
    done = invoked("erase", "--keys", "person-1", log, tmp_path / "f")
    assert (done.exit_code, "expected a file with one key a line, or - for standard input" in done.stderr) == (2, True)


@pytest.mark.parametrize(("line", "why"), [("hex:zz", "line 1: what follows"), ("base64:secret", "line 1: what follows")])
def test_no_error_says_a_key(log: Path, tmp_path: Path, line: str, why: str) -> None:
    (tmp_path / "keys").write_text(line)
    done = invoked("erase", "--keys", tmp_path / "keys", log, tmp_path / "b")
    assert done.exit_code == 2
    assert why in done.stderr
    assert line.partition(":")[2] not in done.stderr


def test_a_file_without_keys_is_a_mistake(log: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n")
    done = invoked("erase", "--keys", tmp_path / "keys", log, tmp_path / "b")
    assert (done.exit_code, "the key file is empty" in done.stderr) == (2, True)
    assert invoked("erase", "--keys", "keys", "--replicas", "first", log, tmp_path / "b").exit_code == 2


def test_conditions(log: Path, tmp_path: Path) -> None:
    assert invoked("erase", "--where", "tenant=t1", log, tmp_path / "b").exit_code == 0
    assert offsets(tmp_path / "b") == list(range(0, 12, 2))
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    typed = ("--value-format", "json", "--value-schema", schema, "--where", "value.id=2", "--where", "tenant=t0")
    assert invoked("erase", *typed, log, tmp_path / "c").exit_code == 0
    assert offsets(tmp_path / "c") == [0, 1, 3, 4, 5, 6, 7, 9, 10, 11]
    for wrong in ((), ("--keys", tmp_path / "nothing"), ("--where", "tenant"), ("--where", "value.id=1")):
        assert invoked("erase", *wrong, log, tmp_path / "d").exit_code == 2
    assert invoked("erase", "--where", "a=b", log, log.parent).exit_code == 2


def test_what_nobody_knows_is_said(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a", (0, [batch([*RECORDS[:3], Record(3, b"k", b"{broken")])]))
    done = invoked("erase", "--where", "value.id=1", "--value-format", "json", log, tmp_path / "b")
    assert (done.exit_code, done.stderr.splitlines()[1]) == (
        1, "1 record of which nobody knows whether they are meant: payloads that cannot be decoded. They stay",
    )  # fmt: skip
    assert offsets(tmp_path / "b") == [0, 2, 3]


def test_damage(log: Path, tmp_path: Path) -> None:
    flip(log / f"{0:020}.log", 80)
    assert invoked("erase", "--where", "a=b", log, tmp_path / "b").exit_code == 1
    assert not (tmp_path / "b" / "t-0").exists()
    done = invoked("erase", "--where", "a=b", "--errors", "skip", log, tmp_path / "b")
    assert (done.exit_code, "left out" in done.stderr, offsets(tmp_path / "b")) == (1, True, list(range(6, 12)))


def test_long_lists_are_cut_on_a_terminal_and_bounded_in_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_log(tmp_path / "a", (0, [batch([Record(i, b"k%d" % (i % 2)) for i in range(100)])]))
    (tmp_path / "keys").write_text("k1")
    assert "… and 30 more: --json" in invoked("erase", "--keys", tmp_path / "keys", log, tmp_path / "b").stdout
    for name in ("_MOST_STRETCHES", "_LEAST_STRETCHES"):
        monkeypatch.setattr(f"kolumn.writers.rewriting.erase.{name}", 7)
    done = kolumn.erase(log, tmp_path / "c", keys="k1")
    assert (done.records, done.erased.num_rows, done.unlisted) == (50, 7, 43)
    assert kolumn.erase(log, tmp_path / "d", keys="none").records == 0
