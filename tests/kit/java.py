"""Java for tests: what needs it is marked with `NEEDS_JAVA`, Maven fetches what Kafka's programs are made of, and servers of it run."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS_JAVA = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(map(shutil.which, ("java", "mvn"))), reason="needs Java and Maven on the PATH"),
]


def class_path(project: str, built: str, *options: str) -> str:
    """Class path of a Maven project, by its folders in the repository and below `build`; without a network the test is skipped."""
    command = ["mvn", "-q", "-B", "-f", project, *options, "package"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        pytest.skip(f"Maven could not fetch {project}: {done.stdout[-2000:]}")
    return str(ROOT / "build" / built / "lib" / "*")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers on a port of this machine, whose output is appended to a file."""
    with open(output, "ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        end = time.monotonic() + 120
        while not _listens(port):
            alive = process.poll() is None and time.monotonic() < end
            assert alive, output.read_text()[-3000:]
            time.sleep(0.3)
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
