"""Java for tests: what needs it is marked with `NEEDS_JAVA`, and Maven fetches what Kafka's programs are made of."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS_JAVA = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(map(shutil.which, ("java", "mvn"))), reason="needs Java and Maven on the PATH"),
]


def class_path(project: str, built: str) -> str:
    """Class path of a Maven project, by its folders in the repository and below `build`; without a network the test is skipped."""
    done = subprocess.run(["mvn", "-q", "-B", "-f", project, "package"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        pytest.skip(f"Maven could not fetch {project}: {done.stdout[-2000:]}")
    return str(ROOT / "build" / built / "lib" / "*")
