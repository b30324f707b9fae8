"""Which files of a folder are the log: those that a broker loads when it starts on it after a crash."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit.loader_folders import GOLDEN, Files, write
from kolumn.core.errors import ArgumentError
from kolumn.options import Options
from kolumn.readers.plan import live_segments

FOLDERS = json.loads(GOLDEN.read_text())
Logs = dict[str, str]


def newest(live: dict[str, Logs | str]) -> Logs | None:
    """The answer of the newest version that starts on the folder; None if there is none."""
    return next((live[versions] for versions in reversed(live) if not isinstance(live[versions], str)), None)  # type: ignore[return-value]


def live(folder: Path) -> dict[str, str]:
    """Segments that are not empty as a broker would name them after its start, and the files that they are now."""
    try:
        found = [one for one in live_segments(folder, Options()).segments if one.size and one.base_offset is not None]
    except ArgumentError:
        # There is no segment in it.
        return {}
    return {f"{one.base_offset}.log": re.sub(r"^0*(?=\d)", "", Path(one.path).name) for one in found}


@pytest.mark.sample
@pytest.mark.parametrize("one", FOLDERS, ids=lambda one: one["name"])
def test_the_segments_are_those_that_the_newest_broker_loads(one: dict[str, Any], tmp_path: Path) -> None:
    files: Files = one["files"]
    write(tmp_path / "t-0", files)
    answer = newest(one["live"])
    if answer is None:
        answer = {name: name for name in files if re.fullmatch(r"\d+\.log", name)}
    assert live(tmp_path / "t-0") == answer
