"""The tree stays small enough to be carried to a machine with a GPU, together with a bundle of packages."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = 12 << 20


def test_tracked_files_are_below_12_mib() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no checkout")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    # Links count as what they are, not as what they lead to; a file may be removed, and not yet for git.
    sizes = {name: path.lstat().st_size for name in names if name and ((path := ROOT / name).is_symlink() or path.exists())}
    assert sum(sizes.values()) < MOST, sorted(sizes, key=lambda name: -sizes[name])[:10]
