"""Folders as crashes leave them, and which of their files brokers load: `tests/data/loader/folders.json`.

    "files": {"0.log": [0, 10], "0.log.swap": [0, 10], "0.index.cleaned": 0}     the offsets of a file; no bytes
    "live": {"2.4.1 4.3.0": {"0.log": "0.log.swap"}}                             by version: what each log is after the start

In names, 20 digits are written as a number, and other digits after "=". A log that has no bytes after the start is not listed. A string
in place of the logs is the class of the error with which that broker refused the folder.

`python -m kit.loader_folders VERSION CLASSPATH` in `tests/` asks one version's own loader about all folders again, and prints its answers.
It runs `tests/foreign/Loader.java` with the jars of that version's artifact `kafka`.
"""

import hashlib
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kit.encoder import Record, message

Files = dict[str, Any]
TESTS = Path(__file__).parents[1]
GOLDEN = TESTS / "data" / "loader" / "folders.json"


def real_name(name: str) -> str:
    """A name with all of its digits."""
    return name[1:] if name.startswith("=") else re.sub(r"^\d+(?=[.-])", lambda found: f"{int(found[0]):020}", name)


def content(name: str, offsets: Any) -> bytes:
    """Messages of format 0, which all versions know, with the file's name in them."""
    return b"" if not offsets else b"".join(message(0, Record(offset, None, name.encode())) for offset in range(*offsets))


def write(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True)
    for name, offsets in files.items():
        (folder / real_name(name)).write_bytes(content(name, offsets))


def answers(classes: str, all_files: list[Files]) -> list[dict[str, str] | str]:
    """What a version's own loader makes of folders."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / f"t-{number}" for number in range(len(all_files))]
        for folder, files in zip(folders, all_files, strict=True):
            write(folder, files)
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classes, str(TESTS / "foreign" / "Loader.java")]
        given = "".join(f"{folder}\n" for folder in folders)
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
        made: list[dict[str, str] | str] = []
        for line, files in zip(done.stdout.splitlines(), all_files, strict=True):
            digests = {hashlib.sha1(content(*one)).hexdigest(): one[0] for one in files.items() if one[1]}
            found, empty = json.loads(line), hashlib.sha1().hexdigest()
            short = {f"{int(name[:20])}.log": digest for name, digest in found["logs"].items() if len(name) == 24 and digest != empty}
            made.append(found["error"] or {name: digests[digest] for name, digest in sorted(short.items())})
    return made


def random_files(seed: int) -> Files:
    """A folder of a few segments in any of their states."""
    rng = random.Random(seed)
    bases, files = sorted(rng.sample(range(0, 60, 5), rng.randint(1, 4))), Files()
    for base in bases:
        length = rng.choice((0, 3, 5, 5, 10, 20))
        for suffix in (".log", ".log.swap", ".log.cleaned", ".log.deleted"):
            if rng.random() < (0.7 if suffix == ".log" else 0.25):
                files[f"{base}{suffix}"] = [base, base + length] if length else 0
        for inner in (".index", ".timeindex", ".txnindex"):
            suffix = rng.choice(("", "", "", "", ".swap", ".cleaned", ".deleted"))
            if suffix and rng.random() < 0.4:
                files[f"{base}{inner}{suffix}"] = 0
    return files


if __name__ == "__main__":
    golden = json.loads(GOLDEN.read_text())
    for one, live in zip(golden, answers(sys.argv[2], [one["files"] for one in golden]), strict=True):
        print(sys.argv[1], one["name"], json.dumps(live))
