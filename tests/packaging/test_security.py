"""The tests that `docs/security.md` names exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()


def test_files_and_tests_are_there() -> None:
    files = [ROOT / name for name in re.findall(r"`(tests/[a-z0-9_/]+(?:\.py)?)`", TEXT)]
    assert len(files) > 10
    assert [str(path) for path in files if not path.exists()] == []
    code = "".join(path.read_text() for path in files if path.is_file())
    code += "".join(path.read_text() for path in ROOT.glob("tests/fuzz/*.py"))
    names = re.findall(r"`(test_[a-z0-9_]+)`", TEXT)
    assert len(names) > 15
    assert [name for name in names if f"def {name}(" not in code] == []


def test_readme_leads_there() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "docs/security.md" in readme
    assert "docs/howto/spark-issue-threads.md" in readme
