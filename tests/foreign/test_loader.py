"""Kafka's own loader takes the same files of a folder for the log as Kolumn does."""

import json
from pathlib import Path

from behaviour.test_loader import live
from kit.java import NEEDS_JAVA
from kit.loader_folders import GOLDEN, answers, random_files, write

VERSION = "3.9.1"
COUNT = 400

pytestmark = NEEDS_JAVA


def test_its_answers_are_those_that_were_noted(broker: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    noted = [next(found for versions, found in one["live"].items() if versions == "all" or VERSION in versions) for one in golden]
    assert answers(broker, [one["files"] for one in golden]) == noted


def test_random_folders_have_the_same_segments(broker: str, tmp_path: Path) -> None:
    folders = [random_files(seed) for seed in range(1000, 1000 + COUNT)]
    different = []
    for number, (files, answer) in enumerate(zip(folders, answers(broker, folders), strict=True)):
        write(tmp_path / str(number) / "t-0", files)
        if live(tmp_path / str(number) / "t-0") != answer:
            different.append((files, answer))
    assert different == []
