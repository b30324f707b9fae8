"""Context of a result: commit, machine, versions."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kolumn.cpu_fallback.inflate import libraries

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numba", "numpy", "pyarrow", "cramjam", "zstandard", "isal")


def describe() -> dict[str, Any]:
    """Commit (with ``+changes`` where the tree differs from it), time, CPU, cores and versions."""
    return {
        "commit": _git("rev-parse", "--short", "HEAD") + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else ""),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "system": platform.release(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "zstd": libraries.name(),
    }


def save(question: str, result: dict[str, Any], folder: Path | None = None) -> Path:
    """Write ``results/<question>.json``, or to another folder, whole or not at all: `describe` and ``result`` side by side."""
    path = (folder or RESULTS) / f"{question}.json"
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(_text({**describe(), **result}))
    return partial.replace(path)


def _text(result: dict[str, Any]) -> str:
    """JSON in which each row of a table is a line."""
    parts = []
    for name, value in result.items():
        is_table = isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
        rows = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]" if is_table else json.dumps(value, indent=1).replace("\n", "\n ")
        parts.append(f" {json.dumps(name)}: {rows}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _git(*arguments: str) -> str:
    """What git says; nothing where there is none, as on a machine with a copy of the tree."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def _field(path: str, name: str) -> str:
    """Value of the first ``name : value`` line of a file of /proc."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
